#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own avx512fintrin.h trips over these warnings (GCC bug 105593); they are off for this file alone.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "core/linear_block.hpp"
#include "core/logprob_row.hpp"

namespace rewardkit::detail {
namespace {

struct Avx512 {
  using V = __m512;
  static constexpr int width = 16;
  static constexpr int K = 4;
  static constexpr bool kUnderflowsToZero = true;
  static constexpr bool kOutrunsMemory = true;
  static constexpr int linear_columns = 12;  // 24 sums, 2 vectors of rows and 1 weight in 32 registers

  template <class T>
  static T minus_infinity();
  static float to_float(float x) { return x; }
  static float to_float(BFloat16 x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
    float value = 0.0F;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  static float to_float(Float16 x) { return _cvtsh_ss(x.bits); }

  static V set(float x) { return _mm512_set1_ps(x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }  // the second, where one is NaN
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V multiply_add(V a, V b, V c) { return fma(a, b, c); }
  static V load_one(const float* p) { return _mm512_loadu_ps(p); }
  static void store_one(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void add_to(double* p, V v) {
    _mm512_storeu_pd(p, _mm512_add_pd(_mm512_loadu_pd(p), _mm512_cvtps_pd(_mm512_castps512_ps256(v))));
    _mm512_storeu_pd(p + 8, _mm512_add_pd(_mm512_loadu_pd(p + 8), _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))));
  }
  static float largest(V v) { return _mm512_reduce_max_ps(v); }
  static bool any_nan(V v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  static bool any_above(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
  static double sum(V v) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
  }

  // 2^t as 2^frac(t) by a polynomial of degree 5 (relative error 1.5e-7) times 2^floor(t), which scalef gives for any
  // t.
  static V exp2(V t) {
    const V f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    V p = _mm512_fmadd_ps(set(0x1.ec320ap-10F), f, set(0x1.26900ep-7F));
    p = _mm512_fmadd_ps(p, f, set(0x1.c95446p-5F));
    p = _mm512_fmadd_ps(p, f, set(0x1.ebd5a8p-3F));
    p = _mm512_fmadd_ps(p, f, set(0x1.62e4f6p-1F));
    p = _mm512_fmadd_ps(p, f, set(0x1.fffffep-1F));
    return _mm512_scalef_ps(p, t);
  }
  static V add_exp2(V t, V sum) { return _mm512_add_ps(sum, exp2(t)); }

  static void prefetch(const void* p, std::size_t bytes) {
    const char* ahead = static_cast<const char*>(p) + 2048;
    for (std::size_t line = 0; line < bytes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
  }

  static void load(const float* p, V& a, V& b) { load_in_order(p, a, b); }
  static void load(const Float16* p, V& a, V& b) { load_in_order(p, a, b); }
  static void load(const BFloat16* p, V& a, V& b) {  // the even ones and the odd ones: one instruction each
    const __m512i v = _mm512_loadu_si512(p);
    a = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    b = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }

  static void load_in_order(const float* p, V& a, V& b) {
    a = _mm512_loadu_ps(p);
    b = _mm512_loadu_ps(p + width);
  }
  static void load_in_order(const BFloat16* p, V& a, V& b) {
    a = widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    b = widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + width)));
  }
  static void load_in_order(const Float16* p, V& a, V& b) {
    a = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    b = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + width)));
  }

  static void store_in_order(float* p, V a, V b) {
    _mm512_storeu_ps(p, a);
    _mm512_storeu_ps(p + width, b);
  }
  static void store_in_order(BFloat16* p, V a, V b) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(a));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + width), narrow(b));
  }
  static void store_in_order(Float16* p, V a, V b) {
    constexpr int rounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, rounding));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + width), _mm512_cvtps_ph(b, rounding));
  }

 private:
  static V widen(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }
  static __m256i narrow(V v) {  // to nearest, ties to even; NaN stays NaN
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
  }
};

template <>
float Avx512::minus_infinity<float>() {
  return -kInfinity;
}
template <>
BFloat16 Avx512::minus_infinity<BFloat16>() {
  return {0xFF80};
}
template <>
Float16 Avx512::minus_infinity<Float16>() {
  return {0xFC00};
}

}  // namespace

const LogprobKernels logprob_avx512 = KernelsOf<Avx512>::table;
const LinearKernels linear_avx512 = LinearBlock<Avx512>::table;

}  // namespace rewardkit::detail

#endif
