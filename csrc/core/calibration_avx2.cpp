#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "core/calibration_block.hpp"

namespace rewardkit::calibration {
namespace {

// Eight right/wrong bytes as 32-bit zeros and ones.
inline __m256i load_correct(const std::uint8_t* correct) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(correct));
  return _mm256_cvtepu8_epi32(_mm_min_epu8(bytes, _mm_set1_epi8(1)));
}

struct Eight {
  __m256 single;
  __m256d low, high;
};
inline Eight load(const float* q) {
  const __m256 single = _mm256_loadu_ps(q);
  return {single, _mm256_cvtps_pd(_mm256_castps256_ps128(single)), _mm256_cvtps_pd(_mm256_extractf128_ps(single, 1))};
}
inline Eight load(const double* q) {
  const __m256d low = _mm256_loadu_pd(q), high = _mm256_loadu_pd(q + 4);
  return {_mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)), low, high};
}

// True in the lanes of a valid confidence, tested before any rounding.
inline int all_valid(const Eight& q) {
  const __m256d zero = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0);
  const __m256d low = _mm256_and_pd(_mm256_cmp_pd(q.low, zero, _CMP_GE_OQ), _mm256_cmp_pd(q.low, one, _CMP_LE_OQ));
  const __m256d high = _mm256_and_pd(_mm256_cmp_pd(q.high, zero, _CMP_GE_OQ), _mm256_cmp_pd(q.high, one, _CMP_LE_OQ));
  return _mm256_movemask_pd(_mm256_and_pd(low, high)) == 0xF;
}

inline __m256i bins_by_guess(__m256 q, __m256 scale, __m256 table_low, __m256 table_high) {
  const __m256i guess = _mm256_cvttps_epi32(_mm256_mul_ps(q, scale));
  const __m256 low = _mm256_permutevar8x32_ps(table_low, guess), high = _mm256_permutevar8x32_ps(table_high, guess);
  // Bit 3 of the guess, moved to the sign, chooses the half of the table.
  const __m256 next = _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(guess, 28)));
  return _mm256_sub_epi32(guess, _mm256_castps_si256(_mm256_cmp_ps(q, next, _CMP_GE_OQ)));
}

inline __m256i bins_by_single(__m256 q, const float* thresholds, int count) {
  __m256i bin = _mm256_setzero_si256();
  for (int k = 0; k < count; ++k) {
    bin = _mm256_sub_epi32(bin, _mm256_castps_si256(_mm256_cmp_ps(q, _mm256_broadcast_ss(thresholds + k), _CMP_GE_OQ)));
  }
  return bin;
}

inline __m256i bins_by_double(__m256d low, __m256d high, const double* thresholds, int count) {
  __m256i bin_low = _mm256_setzero_si256(), bin_high = _mm256_setzero_si256();
  for (int k = 0; k < count; ++k) {
    const __m256d threshold = _mm256_broadcast_sd(thresholds + k);
    bin_low = _mm256_sub_epi64(bin_low, _mm256_castpd_si256(_mm256_cmp_pd(low, threshold, _CMP_GE_OQ)));
    bin_high = _mm256_sub_epi64(bin_high, _mm256_castpd_si256(_mm256_cmp_pd(high, threshold, _CMP_GE_OQ)));
  }
  const __m256i even = _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(bin_low), _mm256_castsi256_ps(bin_high), _MM_SHUFFLE(2, 0, 2, 0)));
  return _mm256_permute4x64_epi64(even, _MM_SHUFFLE(3, 1, 2, 0));
}

enum class Rule { guess, single, exact };

template <class T, Rule rule, Mode mode>
bool fill(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Block& block) {
  const int count = plan.bins - 1;
  const __m256d magic = _mm256_set1_pd(plan.magic);
  const __m256i magic_bits = _mm256_set1_epi64x(plan.magic_bits), one = _mm256_set1_epi64x(plan.one);
  const __m256i term_bits = _mm256_set1_epi64x(mode == Mode::histogram ? plan.magic_bits - plan.unit : plan.magic_bits);
  const __m256 scale = _mm256_set1_ps(plan.scale);
  const __m256 table_low = _mm256_loadu_ps(plan.single.data()), table_high = _mm256_loadu_ps(plan.single.data() + 8);
  __m256i squares = _mm256_setzero_si256();
  for (int i = 0; i < size; i += 8) {
    const Eight q = load(confidence + i);
    if (!all_valid(q)) return false;
    const __m256i right = load_correct(correct + i);
    __m256i bin;
    if constexpr (rule == Rule::guess) {
      bin = bins_by_guess(q.single, scale, table_low, table_high);
    } else if constexpr (rule == Rule::single) {
      bin = bins_by_single(q.single, plan.single.data(), count);
    } else {
      bin = bins_by_double(q.low, q.high, plan.thresholds, count);
    }
    const __m128i right_low = _mm256_castsi256_si128(right), right_high = _mm256_extracti128_si256(right, 1);
    const __m256d error_low = _mm256_sub_pd(q.low, _mm256_cvtepi32_pd(right_low));
    const __m256d error_high = _mm256_sub_pd(q.high, _mm256_cvtepi32_pd(right_high));
    __m256i term_low = _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(q.low, magic)), term_bits);
    __m256i term_high = _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(q.high, magic)), term_bits);
    const __m256i square_low =
        _mm256_sub_epi64(_mm256_castpd_si256(_mm256_fmadd_pd(error_low, error_low, magic)), magic_bits);
    const __m256i square_high =
        _mm256_sub_epi64(_mm256_castpd_si256(_mm256_fmadd_pd(error_high, error_high, magic)), magic_bits);
    if constexpr (mode == Mode::histogram) {
      bin = _mm256_add_epi32(_mm256_slli_epi32(bin, 1), right);
      squares = _mm256_add_epi64(squares, _mm256_add_epi64(square_low, square_high));
    } else {
      const __m256i zero = _mm256_setzero_si256();
      term_low =
          _mm256_sub_epi64(term_low, _mm256_and_si256(one, _mm256_sub_epi64(zero, _mm256_cvtepi32_epi64(right_low))));
      term_high =
          _mm256_sub_epi64(term_high, _mm256_and_si256(one, _mm256_sub_epi64(zero, _mm256_cvtepi32_epi64(right_high))));
      _mm256_store_si256(reinterpret_cast<__m256i*>(block.square.data() + i), square_low);
      _mm256_store_si256(reinterpret_cast<__m256i*>(block.square.data() + i + 4), square_high);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.index.data() + i), bin);
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.term.data() + i), term_low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(block.term.data() + i + 4), term_high);
  }
  alignas(32) std::int64_t parts[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), squares);
  block.square_sum = parts[0] + parts[1] + parts[2] + parts[3];
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
bool fill_block_avx2(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                     Block& block) {
  return mode == Mode::histogram ? fill_by_rule<T, Mode::histogram>(confidence, correct, size, plan, block)
                                 : fill_by_rule<T, Mode::segmented>(confidence, correct, size, plan, block);
}

template bool fill_block_avx2<float>(const float*, const std::uint8_t*, int, const Plan<float>&, Mode, Block&);
template bool fill_block_avx2<double>(const double*, const std::uint8_t*, int, const Plan<double>&, Mode, Block&);

}  // namespace rewardkit::calibration
#endif
