#if defined(__x86_64__)
// GCC's own AVX-512 headers read variables that are undefined on purpose (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "core/calibration_block.hpp"

namespace rewardkit::calibration {
namespace {

struct Sixteen {
  __m512 single;
  __m512d low, high;
};
inline Sixteen load(const float* q) {
  const __m512 single = _mm512_loadu_ps(q);
  return {single, _mm512_cvtps_pd(_mm512_castps512_ps256(single)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(single, 1))};
}
inline Sixteen load(const double* q) {
  const __m512d low = _mm512_loadu_pd(q), high = _mm512_loadu_pd(q + 8);
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1), low, high};
}

enum class Rule { guess, single, exact };

template <class T, Rule rule, Mode mode>
bool fill(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Block& block) {
  const int count = plan.bins - 1;
  const __m512d magic = _mm512_set1_pd(plan.magic), zero = _mm512_setzero_pd(), unity = _mm512_set1_pd(1.0);
  const __m512i magic_bits = _mm512_set1_epi64(plan.magic_bits), one = _mm512_set1_epi64(plan.one);
  const __m512i term_bits = _mm512_set1_epi64(mode == Mode::histogram ? plan.magic_bits - plan.unit : plan.magic_bits);
  const __m512 scale = _mm512_set1_ps(plan.scale), table = _mm512_loadu_ps(plan.single.data());
  const __m512i lane_one = _mm512_set1_epi32(1);
  __m512i squares = _mm512_setzero_si512();
  for (int i = 0; i < size; i += 16) {
    const Sixteen q = load(confidence + i);
    __mmask8 valid = _mm512_cmp_pd_mask(q.low, zero, _CMP_GE_OQ);
    valid = _mm512_mask_cmp_pd_mask(valid, q.low, unity, _CMP_LE_OQ);
    valid = _mm512_mask_cmp_pd_mask(valid, q.high, zero, _CMP_GE_OQ);
    valid = _mm512_mask_cmp_pd_mask(valid, q.high, unity, _CMP_LE_OQ);
    if (valid != 0xFF) return false;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(correct + i));
    const __mmask16 right = _mm_test_epi8_mask(bytes, bytes);
    const __mmask8 right_low = static_cast<__mmask8>(right), right_high = static_cast<__mmask8>(right >> 8);
    __m512i bin;
    if constexpr (rule == Rule::guess) {
      const __m512i guess = _mm512_cvttps_epi32(_mm512_mul_ps(q.single, scale));
      const __mmask16 next = _mm512_cmp_ps_mask(q.single, _mm512_permutexvar_ps(guess, table), _CMP_GE_OQ);
      bin = _mm512_mask_add_epi32(guess, next, guess, lane_one);
    } else if constexpr (rule == Rule::single) {
      bin = _mm512_setzero_si512();
      for (int k = 0; k < count; ++k) {
        const __mmask16 above =
            _mm512_cmp_ps_mask(q.single, _mm512_set1_ps(plan.single[static_cast<std::size_t>(k)]), _CMP_GE_OQ);
        bin = _mm512_mask_add_epi32(bin, above, bin, lane_one);
      }
    } else {
      bin = _mm512_setzero_si512();
      for (int k = 0; k < count; ++k) {
        const __m512d threshold = _mm512_set1_pd(plan.thresholds[k]);
        const unsigned low = _mm512_cmp_pd_mask(q.low, threshold, _CMP_GE_OQ);
        const unsigned high = _mm512_cmp_pd_mask(q.high, threshold, _CMP_GE_OQ);
        bin = _mm512_mask_add_epi32(bin, static_cast<__mmask16>(low | (high << 8)), bin, lane_one);
      }
    }
    const __m512d error_low = _mm512_mask_sub_pd(q.low, right_low, q.low, unity);
    const __m512d error_high = _mm512_mask_sub_pd(q.high, right_high, q.high, unity);
    __m512i term_low = _mm512_sub_epi64(_mm512_castpd_si512(_mm512_add_pd(q.low, magic)), term_bits);
    __m512i term_high = _mm512_sub_epi64(_mm512_castpd_si512(_mm512_add_pd(q.high, magic)), term_bits);
    const __m512i square_low =
        _mm512_sub_epi64(_mm512_castpd_si512(_mm512_fmadd_pd(error_low, error_low, magic)), magic_bits);
    const __m512i square_high =
        _mm512_sub_epi64(_mm512_castpd_si512(_mm512_fmadd_pd(error_high, error_high, magic)), magic_bits);
    if constexpr (mode == Mode::histogram) {
      bin = _mm512_slli_epi32(bin, 1);
      bin = _mm512_mask_add_epi32(bin, right, bin, lane_one);
      squares = _mm512_add_epi64(squares, _mm512_add_epi64(square_low, square_high));
    } else {
      term_low = _mm512_mask_sub_epi64(term_low, right_low, term_low, one);
      term_high = _mm512_mask_sub_epi64(term_high, right_high, term_high, one);
      _mm512_store_si512(block.square.data() + i, square_low);
      _mm512_store_si512(block.square.data() + i + 8, square_high);
    }
    _mm512_store_si512(block.index.data() + i, bin);
    _mm512_store_si512(block.term.data() + i, term_low);
    _mm512_store_si512(block.term.data() + i + 8, term_high);
  }
  block.square_sum = _mm512_reduce_add_epi64(squares);
  return true;
}

template <class T, Mode mode>
bool fill_by_rule(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Block& block) {
  if (plan.by_guess) return fill<T, Rule::guess, mode>(confidence, correct, size, plan, block);
  if (plan.by_single) return fill<T, Rule::single, mode>(confidence, correct, size, plan, block);
  if constexpr (sizeof(T) == sizeof(double)) {
    return fill<T, Rule::exact, mode>(confidence, correct, size, plan, block);
  }
  return fill_block_portable<T>(confidence, correct, size, plan, mode, block);
}

}  // namespace

template <class T>
bool fill_block_avx512(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                       Block& block) {
  return mode == Mode::histogram ? fill_by_rule<T, Mode::histogram>(confidence, correct, size, plan, block)
                                 : fill_by_rule<T, Mode::segmented>(confidence, correct, size, plan, block);
}

template bool fill_block_avx512<float>(const float*, const std::uint8_t*, int, const Plan<float>&, Mode, Block&);
template bool fill_block_avx512<double>(const double*, const std::uint8_t*, int, const Plan<double>&, Mode, Block&);

}  // namespace rewardkit::calibration
#endif
