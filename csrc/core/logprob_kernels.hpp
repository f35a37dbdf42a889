// What each instruction set provides for the log-probability kernels; logprob.cpp chooses a table once.
#pragma once

#include <cstdint>

namespace rewardkit::detail {

// The sums over one row, in units of log 2 relative to a whole number `reference`:
//   sum = sum_j 2^(c x_j - reference),  weighted = sum_j (c x_j - reference) 2^(c x_j - reference).
// sum is 0 for a row of only -inf, and NaN for a row with a NaN or a +inf.
struct RowSums {
  double reference;
  double sum;
  double weighted;
};

struct GradientRow {
  float scale;         // 1 / temperature
  float scale_rest;    // what the float `scale` lacks of it
  float lse;           // of the logits after the temperature
  float grad_logprob;  // already divided by the temperature, as is grad_entropy
  float grad_entropy;
  float entropy;
};

// Indexed by DType. A reference in whole numbers makes c * x - reference exact up to one rounding.
struct LogprobKernels {
  RowSums (*sums[3])(const void* row, std::int64_t columns, float c);
  RowSums (*sums_with_entropy[3])(const void* row, std::int64_t columns, float c);
  // Everything but the target's own term, which the caller adds.
  void (*gradient[3])(const void* row, std::int64_t columns, const GradientRow& how, void* out);
};

extern const LogprobKernels logprob_portable;
#if defined(__x86_64__)
extern const LogprobKernels logprob_avx2;
extern const LogprobKernels logprob_avx512;
#endif

}  // namespace rewardkit::detail
