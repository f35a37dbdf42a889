#if defined(__x86_64__)

#include <immintrin.h>

#include "core/linear_block.hpp"
#include "core/logprob_row.hpp"

namespace rewardkit::detail {
namespace {

struct Avx2 {
  using V = __m256;
  static constexpr int width = 8;
  static constexpr int K = 4;
  static constexpr bool kUnderflowsToZero = false;
  static constexpr bool kOutrunsMemory = false;
  static constexpr int linear_columns = 6;  // 12 sums, 2 vectors of rows and 1 weight in 16 registers

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

  static V set(float x) { return _mm256_set1_ps(x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }  // the second, where one is NaN
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V multiply_add(V a, V b, V c) { return fma(a, b, c); }
  static V load_one(const float* p) { return _mm256_loadu_ps(p); }
  static void store_one(float* p, V v) { _mm256_storeu_ps(p, v); }
  static void add_to(double* p, V v) {
    _mm256_storeu_pd(p, _mm256_add_pd(_mm256_loadu_pd(p), _mm256_cvtps_pd(_mm256_castps256_ps128(v))));
    _mm256_storeu_pd(p + 4, _mm256_add_pd(_mm256_loadu_pd(p + 4), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))));
  }
  static bool any_nan(V v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
  static bool any_above(V a, V b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }
  static float largest(V v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
  }
  static double sum(V v) {
    const __m256d four =
        _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }

  // 2^t as a polynomial of degree 5 on [-0.5, 0.5] times 2^k. Adding `magic` rounds to the whole number k and leaves
  // k + 127 in the low bits, which shifted left are the float 2^k. It is a product, not an addition of exponents, so
  // that NaN stays NaN whatever its bits.
  static V exp2(V t) {
    V p, scale;
    split(t, p, scale);
    return _mm256_mul_ps(p, scale);
  }
  static V add_exp2(V t, V sum) {
    V p, scale;
    split(t, p, scale);
    return _mm256_fmadd_ps(p, scale, sum);
  }

  static void prefetch(const void* p, std::size_t bytes) {
    const char* ahead = static_cast<const char*>(p) + 2048;
    for (std::size_t line = 0; line < bytes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
  }

  static void load(const float* p, V& a, V& b) { load_in_order(p, a, b); }
  static void load(const Float16* p, V& a, V& b) { load_in_order(p, a, b); }
  static void load(const BFloat16* p, V& a, V& b) {  // the even ones and the odd ones: one instruction each
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    a = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    b = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }

  static void load_in_order(const float* p, V& a, V& b) {
    a = _mm256_loadu_ps(p);
    b = _mm256_loadu_ps(p + width);
  }
  static void load_in_order(const BFloat16* p, V& a, V& b) {
    a = widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    b = widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + width)));
  }
  static void load_in_order(const Float16* p, V& a, V& b) {
    a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + width)));
  }

  static void store_in_order(float* p, V a, V b) {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + width, b);
  }
  static void store_in_order(BFloat16* p, V a, V b) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + width), narrow(b));
  }
  static void store_in_order(Float16* p, V a, V b) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + width), _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
  }

 private:
  static void split(V t, V& p, V& scale) {
    t = _mm256_max_ps(set(-126.0F), t);
    t = _mm256_min_ps(set(127.0F), t);
    const V magic = set(12582912.0F + 127.0F);
    const V k = _mm256_add_ps(t, magic);
    const V f = _mm256_sub_ps(t, _mm256_sub_ps(k, magic));
    p = _mm256_fmadd_ps(set(0x1.5c08e6p-10F), f, set(0x1.3d0c54p-7F));
    p = _mm256_fmadd_ps(p, f, set(0x1.c6b6e4p-5F));
    p = _mm256_fmadd_ps(p, f, set(0x1.ebf918p-3F));
    p = _mm256_fmadd_ps(p, f, set(0x1.62e428p-1F));
    p = _mm256_fmadd_ps(p, f, set(0x1.000002p+0F));
    scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(k), 23));
  }
  static V widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
  static __m128i narrow(V v) {  // to nearest, ties to even; NaN stays NaN
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
  }
};

template <>
float Avx2::minus_infinity<float>() {
  return -kInfinity;
}
template <>
BFloat16 Avx2::minus_infinity<BFloat16>() {
  return {0xFF80};
}
template <>
Float16 Avx2::minus_infinity<Float16>() {
  return {0xFC00};
}

}  // namespace

const LogprobKernels logprob_avx2 = KernelsOf<Avx2>::table;
const LinearKernels linear_avx2 = LinearBlock<Avx2>::table;

}  // namespace rewardkit::detail

#endif
