// One number per span of token log-probabilities: a warp per span, sums in double in a fixed order.
#include "cuda/device.cuh"
#include "cuda/launchers.hpp"
#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"

namespace rewardkit::cuda {
namespace {

constexpr unsigned kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads)
    reduce_spans(const T* logprobs, std::int64_t tokens, const std::int64_t* offsets, std::int64_t spans,
                 SpanReduction how, double* out) {
  const std::int64_t lane = threadIdx.x % kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / kWarpSize;
  std::int64_t span = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarpSize;
  for (; span < spans; span += warps) {
    const std::int64_t begin = offsets[span], end = offsets[span + 1];
    if (begin < 0 || begin >= end || end > tokens) {  // empty, or no span at all
      if (lane == 0) out[span] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    double sum = 0.0;
    for (std::int64_t i = begin + lane; i < end; i += kWarpSize) {
      const auto value = static_cast<double>(logprobs[i]);
      const double capped = value > 0.0 ? 0.0 : value;  // NaN stays
      sum += how == SpanReduction::mean_prob ? exp(capped) : capped;
    }
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
    const auto count = static_cast<double>(end - begin);
    double result = sum;
    switch (how) {
      case SpanReduction::mean_prob:
      case SpanReduction::mean_log:
        result = sum / count;
        break;
      case SpanReduction::geo_mean:
        result = exp(sum / count);
        break;
      case SpanReduction::prod:
        result = exp(sum);
        break;
      case SpanReduction::sum_log:
        break;
    }
    if (lane == 0) out[span] = result;
  }
}

}  // namespace

int span_reduce(const void* logprobs, bool is_double, std::int64_t tokens, const std::int64_t* offsets,
                std::int64_t spans, SpanReduction how, double* out, Place place) {
  if (spans == 0) return cudaSuccess;
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  constexpr std::int64_t kSpansPerBlock = kThreads / kWarpSize;
  const LaunchShape shape{dim3(grid_for((spans + kSpansPerBlock - 1) / kSpansPerBlock)), kThreads};
  if (is_double) {
    return launch(reduce_spans<double>, shape, stream_of(place), static_cast<const double*>(logprobs), tokens, offsets,
                  spans, how, out);
  }
  return launch(reduce_spans<float>, shape, stream_of(place), static_cast<const float*>(logprobs), tokens, offsets,
                spans, how, out);
}

}  // namespace rewardkit::cuda
