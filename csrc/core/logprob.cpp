#include "core/logprob.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/cpu_features.hpp"
#include "core/logprob_kernels.hpp"
#include "core/parallel.hpp"
#include "core/softmax.hpp"

namespace rewardkit {
namespace {

constexpr double kLog2E = 1.4426950408889634;

const detail::LogprobKernels& kernels() {
#if defined(__x86_64__)
  switch (best_instruction_set()) {
    case InstructionSet::avx512_bf16:
    case InstructionSet::avx512:
      return detail::logprob_avx512;
    case InstructionSet::avx2:
      return detail::logprob_avx2;
    case InstructionSet::portable:
      break;
  }
#endif
  return detail::logprob_portable;
}

std::int64_t element_size(DType dtype) {
  return dtype == DType::float32 ? 4 : 2;
}

const void* row_of(const Logits& logits, std::int64_t row) {
  return static_cast<const char*>(logits.data) + row * logits.row_stride * element_size(logits.dtype);
}

double element(const void* row, std::int64_t column, DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return static_cast<double>(to_float(static_cast<const BFloat16*>(row)[column]));
    case DType::float16:
      return static_cast<double>(to_float(static_cast<const Float16*>(row)[column]));
    case DType::float32:
      break;
  }
  return static_cast<double>(static_cast<const float*>(row)[column]);
}

void set_element(void* row, std::int64_t column, DType dtype, double value) {
  const float rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::bfloat16:
      static_cast<BFloat16*>(row)[column] = from_float<BFloat16>(rounded);
      return;
    case DType::float16:
      static_cast<Float16*>(row)[column] = from_float<Float16>(rounded);
      return;
    case DType::float32:
      static_cast<float*>(row)[column] = rounded;
  }
}

// The row kernels work in units of log 2 with a float factor c = log2(e) / temperature. `unit` takes such units to
// natural ones; it also makes good the rounding of c.
struct Scale {
  float c;
  double unit;
  explicit Scale(double temperature)
      : c(static_cast<float>(kLog2E / temperature)), unit(1.0 / (static_cast<double>(c) * temperature)) {}
};

}  // namespace

std::int64_t detail::first_invalid_target(const std::int64_t* targets, std::int64_t rows, std::int64_t vocab,
                                          std::int64_t ignore_index) {
  for (std::int64_t i = 0; i < rows; ++i) {
    if ((targets[i] < 0 || targets[i] >= vocab) && targets[i] != ignore_index) return i;
  }
  return -1;
}

std::int64_t token_logprobs(const Logits& logits, const std::int64_t* targets, double temperature,
                            std::int64_t ignore_index, float* logprob, float* entropy, float* lse, int threads) {
  const std::int64_t invalid = detail::first_invalid_target(targets, logits.rows, logits.columns, ignore_index);
  if (invalid >= 0) return invalid;
  const auto dtype = static_cast<std::size_t>(logits.dtype);
  const auto sums_of = entropy != nullptr ? kernels().sums_with_entropy[dtype] : kernels().sums[dtype];
  const Scale scale(temperature);
  parallel_for(logits.rows, logits.columns, threads, [&](std::int64_t i) {
    if (targets[i] == ignore_index) {
      if (logprob != nullptr) logprob[i] = 0.0F;
      if (entropy != nullptr) entropy[i] = 0.0F;
      if (lse != nullptr) lse[i] = 0.0F;
      return;
    }
    const void* row = row_of(logits, i);
    const detail::RowSums sums = sums_of(row, logits.columns, scale.c);
    const double log2_sum = sums.sum == 0.0 ? std::numeric_limits<double>::quiet_NaN() : std::log2(sums.sum);
    const double z = scale.unit * (sums.reference + log2_sum);
    if (logprob != nullptr) {
      const double value = element(row, targets[i], logits.dtype) / temperature - z;
      logprob[i] = static_cast<float>(value > 0.0 ? 0.0 : value);
    }
    if (entropy != nullptr) {
      const double value = scale.unit * (log2_sum - sums.weighted / sums.sum);
      entropy[i] = static_cast<float>(value < 0.0 ? 0.0 : value);
    }
    if (lse != nullptr) lse[i] = static_cast<float>(z);
  });
  return -1;
}

void token_logprobs_backward(const Logits& logits, const std::int64_t* targets, double temperature,
                             std::int64_t ignore_index, const float* lse, const float* entropy,
                             const float* grad_logprob, const float* grad_entropy, void* grad_logits,
                             std::int64_t grad_row_stride, int threads) {
  const auto gradient_of = kernels().gradient[static_cast<std::size_t>(logits.dtype)];
  const std::int64_t size = element_size(logits.dtype);
  parallel_for(logits.rows, 2 * logits.columns, threads, [&](std::int64_t i) {
    void* out = static_cast<char*>(grad_logits) + i * grad_row_stride * size;
    const std::int64_t target = targets[i];
    if (target == ignore_index) {
      std::memset(out, 0, static_cast<std::size_t>(logits.columns * size));
      return;
    }
    const void* row = row_of(logits, i);
    const double g = grad_logprob != nullptr ? static_cast<double>(grad_logprob[i]) / temperature : 0.0;
    const double h = grad_entropy != nullptr ? static_cast<double>(grad_entropy[i]) / temperature : 0.0;
    const double level = grad_entropy != nullptr ? static_cast<double>(entropy[i]) : 0.0;
    const float inverse = static_cast<float>(1.0 / temperature);
    const detail::GradientRow how{inverse,
                                  static_cast<float>(1.0 / temperature - static_cast<double>(inverse)),
                                  lse[i],
                                  static_cast<float>(g),
                                  static_cast<float>(h),
                                  static_cast<float>(level)};
    gradient_of(row, logits.columns, how, out);
    if (target < 0 || target >= logits.columns) return;
    const double log_p = element(row, target, logits.dtype) / temperature - static_cast<double>(lse[i]);
    const double p = std::exp(log_p);
    const double entropy_part = p == 0.0 ? 0.0 : p * (log_p + level);
    set_element(out, target, logits.dtype, -g * std::expm1(log_p) - h * entropy_part);  // 1 - p without cancellation
  });
}

void online_softmax_update(const Logits& tile, std::int64_t first_column, const std::int64_t* targets,
                           double temperature, float* state_max, double* state_sum, double* state_weighted,
                           float* target_logit, int threads) {
  if (tile.columns == 0) return;
  const auto dtype = static_cast<std::size_t>(tile.dtype);
  const bool with_entropy = state_weighted != nullptr;
  const auto sums_of = with_entropy ? kernels().sums_with_entropy[dtype] : kernels().sums[dtype];
  const Scale scale(temperature);
  parallel_for(tile.rows, tile.columns, threads, [&](std::int64_t i) {
    const void* row = row_of(tile, i);
    const detail::RowSums sums = sums_of(row, tile.columns, scale.c);
    OnlineSoftmax<double> seen, state;
    if (sums.sum != 0.0) {
      // From the whole reference in units of log 2 to a float in natural units, exactly.
      const double reference = scale.unit * sums.reference;
      seen.max = static_cast<float>(reference);
      const double shift = reference - static_cast<double>(seen.max), factor = std::exp(shift);
      seen.sum = sums.sum * factor;
      seen.weighted = (scale.unit * sums.weighted + shift * sums.sum) * factor;
    }
    state.max = state_max[i];
    state.sum = state_sum[i];
    state.weighted = with_entropy ? state_weighted[i] : 0.0;
    state.merge(seen);
    state_max[i] = state.max;
    state_sum[i] = state.sum;
    if (with_entropy) state_weighted[i] = state.weighted;
    const std::int64_t column = targets[i] - first_column;
    if (column >= 0 && column < tile.columns) {
      target_logit[i] = static_cast<float>(element(row, column, tile.dtype) / temperature);
    }
  });
}

namespace {

template <class T>
double reduce(const T* values, std::int64_t count, SpanReduction how) {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  double total = 0.0;
  for (std::int64_t j = 0; j < count; ++j) {
    const double value = static_cast<double>(values[j]);
    const double logprob = value > 0.0 ? 0.0 : value;
    total += how == SpanReduction::mean_prob ? std::exp(logprob) : logprob;
  }
  const double mean = total / static_cast<double>(count);
  switch (how) {
    case SpanReduction::sum_log:
      return total;
    case SpanReduction::prod:
      return std::exp(total);
    case SpanReduction::geo_mean:
      return std::exp(mean);
    case SpanReduction::mean_prob:
    case SpanReduction::mean_log:
      break;
  }
  return mean;
}

}  // namespace

template <class T>
std::int64_t span_reduce(const T* logprobs, std::int64_t tokens, const std::int64_t* offsets, std::int64_t spans,
                         SpanReduction how, double* out, int threads) {
  for (std::int64_t i = 0; i < spans; ++i) {
    if (!(0 <= offsets[i] && offsets[i] <= offsets[i + 1] && offsets[i + 1] <= tokens)) return i;
  }
  const std::int64_t cost = spans > 0 ? 8 * (1 + tokens / spans) : 0;
  parallel_for(spans, cost, threads,
               [&](std::int64_t i) { out[i] = reduce(logprobs + offsets[i], offsets[i + 1] - offsets[i], how); });
  return -1;
}

template std::int64_t span_reduce<float>(const float*, std::int64_t, const std::int64_t*, std::int64_t, SpanReduction,
                                         double*, int);
template std::int64_t span_reduce<double>(const double*, std::int64_t, const std::int64_t*, std::int64_t, SpanReduction,
                                          double*, int);

}  // namespace rewardkit
