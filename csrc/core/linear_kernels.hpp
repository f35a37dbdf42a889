// What each instruction set provides for linear_token_logprobs; linear.cpp chooses a table once.
#pragma once

#include <cstdint>

namespace rewardkit::detail {

// Memory to ask for while the products run, so that it lies in the cache when its turn comes: `bytes` of each of some
// rows, `bytes_per_run` of them with each run of units.
struct Ahead {
  const char* data;
  std::int64_t stride;  // in bytes
  std::int64_t bytes;
  std::int64_t bytes_per_run;
  std::int64_t rows;
};

// The running softmax of a panel's rows, in units of log 2 relative to `reference`, which is a logit: float[rows]
// (start at the lowest float, so that x - reference is a number or -inf), double[rows] (start at 0), double[rows] or
// null.
struct LinearState {
  float* reference;
  double* sum;
  double* weighted;
};

// Rows [0, columns) of a weight, `count` elements of each, `stride` elements apart, as panels of units.
using PackWeight = void (*)(const void* weight, std::int64_t stride, std::int64_t columns, std::int64_t count,
                            float* out);

// logits[column][row] (+)= hidden x weight^T: for a panel of each,
using Product = void (*)(const float* hidden, const float* weight, std::int64_t runs, bool narrow, bool first,
                         const Ahead& ahead, float* logits);
// or for 1, 2, 4 or kFewRows rows of hidden states, packed as weights are, and weights as they lie in memory.
using Dots = void (*)(const float* hidden, std::int64_t rows, const void* weight, std::int64_t stride,
                      std::int64_t columns, std::int64_t count, bool first, float* logits);
inline constexpr std::int64_t kFewRows = 8;

using UpdateSoftmax = void (*)(const float* logits, std::int64_t columns, float scale, const LinearState& state);

struct LinearKernels {
  int rows;     // of a panel of hidden states
  int columns;  // of a panel of weights
  int run;      // units that lie together in a panel of weights
  // Indexed by DType; a unit is one element as a float.
  PackWeight pack[3];
  Dots dots[3];
  Product product;
  UpdateSoftmax update;
  UpdateSoftmax update_with_entropy;
};

// The same for bfloat16 in pairs, with panels of the sizes of linear_avx512.
struct LinearPairKernels {
  PackWeight pack;
  Dots dots;
  Product product;
};

extern const LinearKernels linear_portable;
#if defined(__x86_64__)
extern const LinearKernels linear_avx2;
extern const LinearKernels linear_avx512;
extern const LinearPairKernels linear_avx512_bf16;
#endif

}  // namespace rewardkit::detail
