// Products of bfloat16 for processors that multiply pairs of them: twice the speed of float, and no widening. The sums
// are float32 as anywhere else; what differs is that the instruction takes numbers below 2^-126 for 0.
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own avx512fintrin.h trips over these warnings (GCC bug 105593); they are off for this file alone.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "core/linear_block.hpp"

namespace rewardkit::detail {
namespace {

struct Avx512Bf16 {
  using V = __m512;
  static constexpr int width = 16;
  static constexpr int linear_columns = 12;

  static V set(float x) { return _mm512_set1_ps(x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V multiply_add(V a, V b, V c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
  static double sum(V v) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
  }
  static V load_one(const float* p) { return _mm512_loadu_ps(p); }
  static void store_one(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void load_in_order(const BFloat16Pair* p, V& a, V& b) {
    a = _mm512_loadu_ps(p);
    b = _mm512_loadu_ps(p + width);
  }
  static void store_in_order(float* p, V a, V b) {
    _mm512_storeu_ps(p, a);
    _mm512_storeu_ps(p + width, b);
  }
};

using Block = LinearBlock<Avx512Bf16>;

}  // namespace

const LinearPairKernels linear_avx512_bf16{&Block::pack_pairs, &Block::dots<BFloat16Pair, BFloat16>, &Block::product};

}  // namespace rewardkit::detail

#endif
