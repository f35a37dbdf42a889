// F1 of bags of token ids: a warp per pair of an answer and a gold.
//
// The i-th token of the answer is matched when fewer equal tokens stand before it than the gold has. That takes no
// memory, no limit on the length and no hashing; its cost is quadratic in the length of an answer, which is short.
#include "cuda/device.cuh"
#include "cuda/launchers.hpp"
#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"

namespace rewardkit::cuda {
namespace {

constexpr unsigned kThreads = 128;

// The last row whose start is <= value.
__device__ __forceinline__ std::int64_t row_of(const std::int64_t* starts, std::int64_t rows, std::int64_t value) {
  std::int64_t low = 0, high = rows - 1;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (starts[middle] <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

template <class Id>
__global__ void __launch_bounds__(kThreads) compare_bags(const Bags<Id> in, double* out) {
  const std::int64_t lane = threadIdx.x % kWarpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / kWarpSize;
  std::int64_t pair = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarpSize;
  for (; pair < in.pairs; pair += warps) {
    const std::int64_t rollout = row_of(in.pair_rows, in.rollouts, pair);
    const std::int64_t golds = in.gold_rows[rollout + 1] - in.gold_rows[rollout];
    const std::int64_t within = pair - in.pair_rows[rollout];
    const std::int64_t answer = in.answer_rows[rollout] + within / golds;
    const std::int64_t gold = in.gold_rows[rollout] + within % golds;
    const Id* const prediction = in.prediction_ids + in.prediction_offsets[answer];
    const Id* const reference = in.reference_ids + in.reference_offsets[gold];
    const std::int64_t predicted = in.prediction_offsets[answer + 1] - in.prediction_offsets[answer];
    const std::int64_t referred = in.reference_offsets[gold + 1] - in.reference_offsets[gold];

    std::int64_t matched = 0;
    for (std::int64_t i = lane; i < predicted; i += kWarpSize) {
      const Id token = prediction[i];
      std::int64_t available = 0;
      for (std::int64_t j = 0; j < referred; ++j) available += reference[j] == token ? 1 : 0;
      for (std::int64_t j = 0; j < i && available > 0; ++j) available -= prediction[j] == token ? 1 : 0;
      matched += available > 0 ? 1 : 0;
    }
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) matched += __shfl_xor_sync(kFullWarp, matched, offset);
    if (lane == 0) {
      const auto common = static_cast<double>(matched);
      const double precision = common / static_cast<double>(predicted);
      const double recall = common / static_cast<double>(referred);
      out[pair] = matched == 0 ? 0.0 : 2.0 * precision * recall / (precision + recall);
    }
  }
}

}  // namespace

template <class Id>
int bag_f1(const Bags<Id>& bags, double* out, Place place) {
  if (bags.pairs == 0) return cudaSuccess;
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  constexpr std::int64_t kPairsPerBlock = kThreads / kWarpSize;
  const LaunchShape shape{dim3(grid_for((bags.pairs + kPairsPerBlock - 1) / kPairsPerBlock)), kThreads};
  return launch(compare_bags<Id>, shape, stream_of(place), bags, out);
}

template int bag_f1<std::int32_t>(const Bags<std::int32_t>&, double*, Place);
template int bag_f1<std::int64_t>(const Bags<std::int64_t>&, double*, Place);

}  // namespace rewardkit::cuda
