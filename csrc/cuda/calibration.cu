// Counts and exact sums of confidences per group and bin: integers throughout, so the same bits in any order of
// threads, on any device and on the CPU.
//
// Where the cells of all groups fit, each warp has its own copy of them in shared memory, which keeps the atomics of
// different warps apart; the copies are added up at the end of the block. Otherwise the atomics go to the result
// itself.
#include "core/bins.hpp"
#include "cuda/device.cuh"
#include "cuda/launchers.hpp"
#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"

namespace rewardkit::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpSize;
constexpr std::size_t kMaxSharedBytes = 40 * 1024;  // within what every device gives without asking
constexpr std::int64_t kBlocks = 1024;
constexpr std::int64_t kMostPerWarp = std::int64_t{1} << 30;  // so that 32 bits hold a copy's counts

using Wide = unsigned long long;  // what CUDA's 64-bit atomics take

// 32-bit atomics are native in shared memory and 64-bit ones are not: the sum is two halves, and whoever makes the
// lower one wrap carries. Exact, whatever the order.
struct Cell {
  unsigned count, correct;  // of a group's own cell: how many are invalid, and nothing
  unsigned low, high;       // of a group's own cell: of the squared errors
};

__device__ __forceinline__ void add_to(unsigned* low, unsigned* high, std::int64_t value) {
  const auto bits = static_cast<Wide>(value);
  const auto lower = static_cast<unsigned>(bits);
  unsigned upper = static_cast<unsigned>(bits >> 32);
  const unsigned before = atomicAdd(low, lower);
  if (before + lower < before) ++upper;
  if (upper != 0) atomicAdd(high, upper);
}

__device__ __forceinline__ void add_to(std::int64_t* total, std::int64_t value) {
  if (value != 0) atomicAdd(reinterpret_cast<Wide*>(total), static_cast<Wide>(value));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    count_confidences(const CalibrationArrays<T> in, bool in_shared, std::int64_t* histogram,
                      std::int64_t* squared_error, std::int64_t* invalid, std::int64_t* refused) {
  RK_DYNAMIC_SHARED(Cell, shared);
  const int cells = in_shared ? static_cast<int>(in.n_groups) * in.bins : 0;
  const int per_copy =
      cells + (in_shared ? static_cast<int>(in.n_groups) : 0);  // the groups' own cells follow the bins'
  Cell* const mine = shared + static_cast<int>(threadIdx.x / kWarpSize) * per_copy;
  if (in_shared) {
    for (int i = static_cast<int>(threadIdx.x); i < per_copy * static_cast<int>(kWarps); i += kThreads) {
      shared[i] = {0, 0, 0, 0};
    }
    __syncthreads();
  }

  // With one group every thread would add to the same two cells: each keeps its own sum instead.
  const bool one_group = in.groups == nullptr;
  std::int64_t own_squared = 0, own_invalid = 0;
  const double magic = fixed_point_magic(in.fraction_bits);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < in.size; i += step) {
    const T confidence = in.confidence[i];
    const unsigned right = in.correct[i] != 0 ? 1 : 0;
    const std::int64_t group = in.groups == nullptr ? 0 : in.groups[i];
    if (group < 0 || group >= in.n_groups) {
      atomicAdd(reinterpret_cast<Wide*>(refused), Wide{1});
      continue;
    }
    if (!valid_confidence(confidence)) {
      if (confidence != confidence) atomicAdd(reinterpret_cast<Wide*>(refused) + 1, Wide{1});
      if (one_group) {
        ++own_invalid;
      } else if (in_shared) {
        atomicAdd(&mine[cells + static_cast<int>(group)].count, 1U);
      } else {
        add_to(invalid + group, 1);
      }
      continue;
    }
    const int bin = bin_of(confidence, in.thresholds, in.bins - 1);
    const auto exact = static_cast<double>(confidence);
    const std::int64_t sum = fixed_point(exact, magic);
    const std::int64_t squared = fixed_point_square(exact - static_cast<double>(right), magic);
    if (in_shared) {
      Cell& cell = mine[static_cast<int>(group) * in.bins + bin];
      atomicAdd(&cell.count, 1U);
      if (right != 0) atomicAdd(&cell.correct, 1U);
      add_to(&cell.low, &cell.high, sum);
    } else {
      std::int64_t* const cell = histogram + (group * in.bins + bin) * 3;
      add_to(cell, 1);
      add_to(cell + 1, right);
      add_to(cell + 2, sum);
    }
    if (one_group) {
      own_squared += squared;
    } else if (in_shared) {
      Cell& own = mine[cells + static_cast<int>(group)];
      add_to(&own.low, &own.high, squared);
    } else {
      add_to(squared_error + group, squared);
    }
  }
  if (one_group) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      own_squared += __shfl_xor_sync(kFullWarp, own_squared, offset);
      own_invalid += __shfl_xor_sync(kFullWarp, own_invalid, offset);
    }
    if (threadIdx.x % kWarpSize == 0) {
      add_to(squared_error, own_squared);
      add_to(invalid, own_invalid);
    }
  }
  if (!in_shared) return;

  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < per_copy; i += kThreads) {
    std::int64_t count = 0, correct = 0, sum = 0;
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      const Cell cell = shared[static_cast<int>(warp) * per_copy + i];
      count += cell.count;
      correct += cell.correct;
      sum += static_cast<std::int64_t>(Wide{cell.high} << 32 | cell.low);
    }
    if (i < cells) {
      add_to(histogram + i * 3, count);
      add_to(histogram + i * 3 + 1, correct);
      add_to(histogram + i * 3 + 2, sum);
    } else {
      add_to(invalid + (i - cells), count);
      add_to(squared_error + (i - cells), sum);
    }
  }
}

}  // namespace

template <class T>
int calibration_histogram(const CalibrationArrays<T>& in, std::int64_t* histogram, std::int64_t* squared_error,
                          std::int64_t* invalid, std::int64_t* refused, Place place) {
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  const auto zero = [&](std::int64_t* data, std::int64_t count) {
    return cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * sizeof(std::int64_t), stream_of(place));
  };
  for (const cudaError_t error : {zero(histogram, in.n_groups * in.bins * 3), zero(squared_error, in.n_groups),
                                  zero(invalid, in.n_groups), zero(refused, 2)}) {
    if (error != cudaSuccess) return error;
  }
  if (in.size == 0) return cudaSuccess;
  const double bytes = static_cast<double>(in.n_groups) * (in.bins + 1.0) * kWarps * sizeof(Cell);
  const bool in_shared = bytes <= static_cast<double>(kMaxSharedBytes);
  std::int64_t blocks = (in.size + kThreads * 4 - 1) / (kThreads * 4);
  if (blocks > kBlocks) blocks = kBlocks;
  while (in.size / (blocks * kWarps) > kMostPerWarp) blocks *= 2;
  const LaunchShape shape{dim3(grid_for(blocks)), kThreads, in_shared ? static_cast<std::size_t>(bytes) : 0};
  return launch(count_confidences<T>, shape, stream_of(place), in, in_shared, histogram, squared_error, invalid,
                refused);
}

template int calibration_histogram<float>(const CalibrationArrays<float>&, std::int64_t*, std::int64_t*, std::int64_t*,
                                          std::int64_t*, Place);
template int calibration_histogram<double>(const CalibrationArrays<double>&, std::int64_t*, std::int64_t*,
                                           std::int64_t*, std::int64_t*, Place);

}  // namespace rewardkit::cuda
