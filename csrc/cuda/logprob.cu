// Log-probabilities of tokens: one read of the logits, and sums that come out the same on every run.
//
// A row is cut into segments of fixed length, each the work of one warp: it reads 16 bytes per lane and keeps the
// largest logit so far and the sums relative to it. The segments' results are merged in a fixed order in double, by the
// block that read the row, or by a second kernel when several blocks shared it.
#include "cuda/device.cuh"
#include "cuda/launchers.hpp"
#include "cuda/number.cuh"
#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"

namespace rewardkit::cuda {
namespace {

constexpr unsigned kMaxThreads = 256;
constexpr int kUnroll = 4;  // independent 16-byte loads per lane: with the warps that fit, enough bytes in flight
constexpr std::int64_t kSegment = 4096;
constexpr std::int64_t kTileSegment = 1024;  // for the tiles of online_softmax_update, which are short
constexpr std::int64_t kMaxSegments = 1024;
constexpr std::int64_t kEnoughBlocks = 2048;  // a row is shared until there are so many: 16 for each of 132 processors
constexpr std::int64_t kGradientChunk = 8192;

// What one warp found in one segment: the largest logit, and relative to it
//   sum = sum_j 2^u_j,   weighted = sum_j u_j 2^u_j,   u_j = (x_j - max) log2(e) / temperature.
// The largest logit starts at the lowest finite number instead of -inf, so that differences to it are never inf - inf.
struct Partial {
  float max, sum, weighted;
};

template <bool kEntropy>
__device__ __forceinline__ void raise(Partial& state, float to, float scale) {
  const float distance = (state.max - to) * scale;
  const float factor = exp2_of(distance);
  if (kEntropy) state.weighted = factor == 0.0F ? 0.0F : (state.weighted + distance * state.sum) * factor;
  state.sum *= factor;
  state.max = to;
}

template <bool kEntropy, int kCount>
__device__ __forceinline__ void add(Partial& state, const float (&x)[kCount], float scale) {
  float top = x[0];
#pragma unroll
  for (int k = 1; k < kCount; ++k) top = fmaxf(top, x[k]);
  if (top > state.max) raise<kEntropy>(state, top, scale);
  float sum = 0.0F, weighted = 0.0F;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const float u = (x[k] - state.max) * scale;
    const float e = exp2_of(u);  // NaN for a NaN and for +inf - +inf, which the sum keeps
    sum += e;
    // A masked logit has u = -inf and e = 0, and their product must be 0.
    if (kEntropy) weighted = fmaf(e, fmaxf(u, -150.0F), weighted);
  }
  state.sum += sum;
  if (kEntropy) state.weighted += weighted;
}

template <bool kEntropy, class T>
__device__ __forceinline__ void add_scalars(Partial& state, const T* row, std::int64_t begin, std::int64_t end,
                                            float scale) {
  for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x % kWarpSize); i < end; i += kWarpSize) {
    const float x[1] = {widen(row[i])};
    add<kEntropy>(state, x, scale);
  }
}

template <bool kEntropy>
__device__ __forceinline__ Partial warp_merge(Partial state, float scale) {
  float top = state.max;
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, offset));
  raise<kEntropy>(state, top, scale);
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    state.sum += __shfl_xor_sync(kFullWarp, state.sum, offset);
    if (kEntropy) state.weighted += __shfl_xor_sync(kFullWarp, state.weighted, offset);
  }
  return state;
}

// How the rows are cut. Segment boundaries stand at 16-byte boundaries: the first segment also has the elements before
// the first of them.
struct Segments {
  std::int64_t length;
  int count;

  __host__ __device__ static Segments of(std::int64_t columns, std::int64_t at_least) {
    std::int64_t length = at_least;
    while (columns > length * kMaxSegments) length *= 2;
    return {length, static_cast<int>((columns + length - 1) / length)};
  }
};

template <bool kEntropy, class T>
__device__ __forceinline__ Partial segment_sums(const T* row, std::int64_t columns, Segments segments, int index,
                                                float scale) {
  constexpr int kCount = Packed<T>::kCount;
  const std::int64_t lane = threadIdx.x % kWarpSize;
  std::int64_t head = elements_to_alignment(row);
  if (head > columns) head = columns;
  Partial state{kLowest, 0.0F, 0.0F};
  if (index == 0) add_scalars<kEntropy>(state, row, 0, head, scale);
  const std::int64_t begin = head + index * segments.length;
  std::int64_t end = index + 1 == segments.count ? columns : begin + segments.length;
  if (end > columns) end = columns;
  if (begin < end) {
    const std::int64_t vectors = (end - begin) / kCount;
    const T* const aligned = row + begin;
    std::int64_t i = lane;
    for (; i + (kUnroll - 1) * kWarpSize < vectors; i += kUnroll * kWarpSize) {
      uint4 raw[kUnroll];
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) raw[k] = load_16_bytes(aligned + (i + k * kWarpSize) * kCount);
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        float x[kCount];
        Packed<T>::unpack(raw[k], x);
        add<kEntropy>(state, x, scale);
      }
    }
    for (; i < vectors; i += kWarpSize) {
      float x[kCount];
      Packed<T>::unpack(load_16_bytes(aligned + i * kCount), x);
      add<kEntropy>(state, x, scale);
    }
    add_scalars<kEntropy>(state, row, begin + vectors * kCount, end, scale);
  }
  return warp_merge<kEntropy>(state, scale);
}

// The sums of a row relative to its largest logit, the weighted ones in nats.
struct RowTotal {
  float max;
  double sum, weighted;
};

// By one whole warp, in an order that depends on `count` alone. All lanes get the result.
__device__ __forceinline__ RowTotal merge_segments(const Partial* partials, int count, double scale) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  float top = kLowest;
  for (int i = lane; i < count; i += kWarpSize) top = fmaxf(top, partials[i].max);
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, offset));
  double sum = 0.0, weighted = 0.0;
  for (int i = lane; i < count; i += kWarpSize) {
    const Partial part = partials[i];
    const double distance = (static_cast<double>(part.max) - static_cast<double>(top)) * scale;
    const double factor = exp2(distance);
    const double scaled = part.sum * factor;
    sum += scaled;
    if (factor > 0.0) weighted += part.weighted * factor + distance * scaled;
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, offset);
    weighted += __shfl_xor_sync(kFullWarp, weighted, offset);
  }
  return {top, sum, weighted * kLn2};
}

template <class T>
struct Forward {
  const T* logits;
  std::int64_t rows, columns, row_stride;
  const std::int64_t* targets;
  std::int64_t ignore_index;
  double temperature;
  Segments segments;
  int splits;
  Partial* workspace;  // [rows][segments.count] when splits > 1
  float *logprob, *entropy, *lse;

  __device__ bool is_read(std::int64_t target) const {
    return target != ignore_index && target >= 0 && target < columns;
  }
};

__host__ __device__ __forceinline__ double exponent_scale(double temperature) {
  return kLog2E / temperature;
}

// The same as a float that is neither 0 nor infinite, so that 0 and -inf stay themselves when multiplied by it.
__host__ __device__ __forceinline__ float exponent_scale_float(double temperature) {
  const double scale = exponent_scale(temperature);
  return static_cast<float>(scale < 1e-37 ? 1e-37 : scale > 1e38 ? 1e38 : scale);
}

// By one whole warp: the outputs of a row whose segments are done.
template <class T>
__device__ __forceinline__ void finish_row(const Forward<T>& of, std::int64_t row, std::int64_t target,
                                           const Partial* partials) {
  float logprob = 0.0F, entropy = 0.0F, lse = 0.0F;
  if (of.is_read(target)) {
    const RowTotal total = merge_segments(partials, of.segments.count, exponent_scale_float(of.temperature));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const bool masked = total.sum == 0.0;  // nothing but -inf
    const double log_sum = masked ? nan : log(total.sum);
    // The difference of two logits before the logarithm is added: no digits are lost to a large common offset.
    const double above = static_cast<double>(widen(of.logits[row * of.row_stride + target])) - total.max;
    const double value = above / of.temperature - log_sum;
    logprob = static_cast<float>(value > 0.0 ? 0.0 : value);
    const double spread = log_sum - total.weighted / total.sum;
    entropy = static_cast<float>(spread < 0.0 ? 0.0 : spread);
    lse = static_cast<float>(total.max / of.temperature + log_sum);
  } else if (target != of.ignore_index) {
    logprob = entropy = lse = std::numeric_limits<float>::quiet_NaN();
  }
  if (threadIdx.x % kWarpSize != 0) return;
  if (of.logprob != nullptr) of.logprob[row] = logprob;
  if (of.entropy != nullptr) of.entropy[row] = entropy;
  if (of.lse != nullptr) of.lse[row] = lse;
}

template <class T, bool kEntropy>
__global__ void __launch_bounds__(kMaxThreads, 4) read_rows(const Forward<T> of) {
  RK_DYNAMIC_SHARED(Partial, shared);
  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const int warps = static_cast<int>(blockDim.x / kWarpSize);
  const float scale = exponent_scale_float(of.temperature);
  const std::int64_t tasks = of.rows * of.splits;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t row = task / of.splits;
    const int part = static_cast<int>(task % of.splits);
    const std::int64_t target = of.targets[row];
    Partial* const partials = of.splits == 1 ? shared : of.workspace + row * of.segments.count;
    if (of.is_read(target)) {
      const int first = static_cast<int>(std::int64_t{part} * of.segments.count / of.splits);
      const int last = static_cast<int>((std::int64_t{part} + 1) * of.segments.count / of.splits);
      const T* const logits = of.logits + row * of.row_stride;
      for (int i = first + warp; i < last; i += warps) {
        const Partial sums = segment_sums<kEntropy>(logits, of.columns, of.segments, i, scale);
        if (threadIdx.x % kWarpSize == 0) partials[i] = sums;
      }
    }
    if (of.splits == 1) {
      __syncthreads();
      if (warp == 0) finish_row(of, row, target, shared);
      __syncthreads();  // the next row writes to the same shared memory
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) finish_rows(const Forward<T> of) {
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / kWarpSize;
  std::int64_t row = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarpSize;
  for (; row < of.rows; row += warps) finish_row(of, row, of.targets[row], of.workspace + row * of.segments.count);
}

unsigned threads_for(std::int64_t segments) {
  const std::int64_t threads = segments * kWarpSize;
  return threads < std::int64_t{kMaxThreads} ? static_cast<unsigned>(threads) : kMaxThreads;
}

int splits_for(std::int64_t rows, const Segments& segments) {
  if (rows >= kEnoughBlocks) return 1;
  const std::int64_t wanted = (kEnoughBlocks + rows - 1) / rows;
  return static_cast<int>(wanted < segments.count ? wanted : segments.count);
}

template <class T>
struct Backward {
  const T* logits;
  std::int64_t rows, columns, row_stride;
  const std::int64_t* targets;
  std::int64_t ignore_index;
  float scale,
      scale_rest;  // 1 / temperature as the sum of two floats: logits of 100 leave one float no digits to spare
  const float *lse, *entropy, *grad_logprob, *grad_entropy;
  T* grad;
  std::int64_t grad_row_stride;
  std::int64_t chunks;
};

struct RowGradient {
  float scale, scale_rest, lse, grad_logprob, grad_entropy, entropy;
  std::int64_t target;

  // (g (1[j = t] - p) - h p (log p + H)) / temperature; g and h have been divided already.
  __device__ __forceinline__ float at(float x, std::int64_t j) const {
    const float log_p = fmaf(fmaxf(x, kLowest), scale_rest, fmaf(x, scale, -lse));  // -inf stays -inf
    const float p = exp2_of(log_p * static_cast<float>(kLog2E));
    const float factor = fmaf(-grad_entropy, fmaxf(log_p, -200.0F) + entropy, -grad_logprob);
    return j == target ? fmaf(p, factor, grad_logprob) : p * factor;
  }
};

template <class T>
__global__ void __launch_bounds__(kMaxThreads) gradient_rows(const Backward<T> of) {
  constexpr int kCount = Packed<T>::kCount;
  const std::int64_t tasks = of.rows * of.chunks;
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t row = task / of.chunks;
    const std::int64_t chunk = task % of.chunks;
    const T* const in = of.logits + row * of.row_stride;
    T* const out = of.grad + row * of.grad_row_stride;
    const std::int64_t target = of.targets[row];
    std::int64_t head = elements_to_alignment(in);
    if (elements_to_alignment(out) != head) head = of.columns;  // no common boundary: element by element
    if (head > of.columns) head = of.columns;
    const bool by_element = head == of.columns;
    const std::int64_t begin = chunk == 0 ? 0 : (by_element ? 0 : head) + chunk * kGradientChunk;
    std::int64_t end = (by_element ? 0 : head) + (chunk + 1) * kGradientChunk;
    if (end > of.columns || chunk + 1 == of.chunks) end = of.columns;

    if (target == of.ignore_index) {
      for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) out[i] = from_float<T>(0.0F);
      continue;
    }
    const RowGradient gradient{of.scale,
                               of.scale_rest,
                               of.lse[row],
                               of.grad_logprob != nullptr ? of.grad_logprob[row] * of.scale : 0.0F,
                               of.grad_entropy != nullptr ? of.grad_entropy[row] * of.scale : 0.0F,
                               of.grad_entropy != nullptr ? of.entropy[row] : 0.0F,
                               target};
    const std::int64_t aligned = by_element ? end : (chunk == 0 ? head : begin);
    const std::int64_t vectors = aligned < end ? (end - aligned) / kCount : 0;
    for (std::int64_t i = begin + threadIdx.x; i < (aligned < end ? aligned : end); i += blockDim.x) {
      out[i] = from_float<T>(gradient.at(widen(in[i]), i));
    }
    for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      const std::int64_t first = aligned + i * kCount;
      float x[kCount];
      Packed<T>::unpack(load_16_bytes(in + first), x);
#pragma unroll
      for (int k = 0; k < kCount; ++k) x[k] = gradient.at(x[k], first + k);
      store_16_bytes(out + first, Packed<T>::pack(x));
    }
    for (std::int64_t i = aligned + vectors * kCount + threadIdx.x; i < end; i += blockDim.x) {
      out[i] = from_float<T>(gradient.at(widen(in[i]), i));
    }
  }
}

template <class T>
struct Update {
  const T* tile;
  std::int64_t rows, columns, row_stride, first_column;
  const std::int64_t* targets;
  double temperature;
  Segments segments;
  float* state_max;
  double *state_sum, *state_weighted;
  float* target_logit;
};

// Adds a tile's total to the running state of a row, whose reference is in nats and after the temperature.
template <class T>
__device__ __forceinline__ void update_state(const Update<T>& of, std::int64_t row, const RowTotal& total) {
  OnlineSoftmax<double> state{of.state_max[row], of.state_sum[row],
                              of.state_weighted != nullptr ? of.state_weighted[row] : 0.0};
  if (total.sum != 0.0) {
    // The reference is stored as a float; what rounding it moves is put back into the sums.
    const double exact = total.max / of.temperature;
    OnlineSoftmax<double> tile{static_cast<float>(exact), total.sum, total.weighted};
    const double moved = exact - tile.max;
    if (moved != 0.0 && moved == moved) {
      tile.weighted = (tile.weighted + moved * tile.sum) * exp(moved);
      tile.sum *= exp(moved);
    }
    state.merge(tile);
  }
  of.state_max[row] = state.max;
  of.state_sum[row] = state.sum;
  if (of.state_weighted != nullptr) of.state_weighted[row] = state.weighted;
  const std::int64_t column = of.targets[row] - of.first_column;
  if (column >= 0 && column < of.columns) {
    of.target_logit[row] = static_cast<float>(widen(of.tile[row * of.row_stride + column]) / of.temperature);
  }
}

template <class T, bool kEntropy>
__global__ void __launch_bounds__(kMaxThreads, 4) update_rows(const Update<T> of) {
  RK_DYNAMIC_SHARED(Partial, shared);
  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const int warps = static_cast<int>(blockDim.x / kWarpSize);
  const float scale = exponent_scale_float(of.temperature);
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T* const logits = of.tile + row * of.row_stride;
    for (int i = warp; i < of.segments.count; i += warps) {
      const Partial sums = segment_sums<kEntropy>(logits, of.columns, of.segments, i, scale);
      if (threadIdx.x % kWarpSize == 0) shared[i] = sums;
    }
    __syncthreads();
    if (warp == 0) {
      const RowTotal total = merge_segments(shared, of.segments.count, scale);
      if (threadIdx.x == 0) update_state(of, row, total);
    }
    __syncthreads();
  }
}

}  // namespace

std::size_t token_logprobs_workspace(std::int64_t rows, std::int64_t columns) {
  if (rows <= 0 || columns <= 0) return 0;
  const Segments segments = Segments::of(columns, kSegment);
  if (splits_for(rows, segments) == 1) return 0;
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(segments.count) * sizeof(Partial);
}

int token_logprobs(const Logits& logits, const std::int64_t* targets, double temperature, std::int64_t ignore_index,
                   float* logprob, float* entropy, float* lse, void* workspace, Place place) {
  if (logits.rows == 0) return cudaSuccess;
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  return with_type_of(logits, [&](auto* data) -> int {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    const Segments segments = Segments::of(logits.columns, kSegment);
    const int splits = workspace == nullptr ? 1 : splits_for(logits.rows, segments);
    const Forward<T> of{data,
                        logits.rows,
                        logits.columns,
                        logits.row_stride,
                        targets,
                        ignore_index,
                        temperature,
                        segments,
                        splits,
                        static_cast<Partial*>(workspace),
                        logprob,
                        entropy,
                        lse};
    const std::int64_t per_block = (segments.count + splits - 1) / splits;
    LaunchShape shape{dim3(grid_for(logits.rows * splits)), threads_for(per_block > 0 ? per_block : 1)};
    if (splits == 1) shape.shared_bytes = static_cast<std::size_t>(segments.count) * sizeof(Partial);
    const auto kernel = entropy != nullptr ? read_rows<T, true> : read_rows<T, false>;
    const cudaError_t error = launch(kernel, shape, stream_of(place), of);
    if (error != cudaSuccess || splits == 1) return error;
    constexpr std::int64_t kRowsPerBlock = kMaxThreads / kWarpSize;
    const LaunchShape finish{dim3(grid_for((logits.rows + kRowsPerBlock - 1) / kRowsPerBlock)), kMaxThreads};
    return launch(finish_rows<T>, finish, stream_of(place), of);
  });
}

int token_logprobs_backward(const Logits& logits, const std::int64_t* targets, double temperature,
                            std::int64_t ignore_index, const float* lse, const float* entropy,
                            const float* grad_logprob, const float* grad_entropy, void* grad_logits,
                            std::int64_t grad_row_stride, Place place) {
  if (logits.rows == 0 || logits.columns == 0) return cudaSuccess;
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  return with_type_of(logits, [&](auto* data) -> int {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    const std::int64_t chunks = (logits.columns + kGradientChunk - 1) / kGradientChunk;
    const double exact = 1.0 / temperature;
    const auto scale = static_cast<float>(exact);
    const Backward<T> of{data,
                         logits.rows,
                         logits.columns,
                         logits.row_stride,
                         targets,
                         ignore_index,
                         scale,
                         static_cast<float>(exact - static_cast<double>(scale)),
                         lse,
                         entropy,
                         grad_logprob,
                         grad_entropy,
                         static_cast<T*>(grad_logits),
                         grad_row_stride,
                         chunks};
    return launch(gradient_rows<T>, {dim3(grid_for(logits.rows * chunks)), kMaxThreads}, stream_of(place), of);
  });
}

int online_softmax_update(const Logits& tile, std::int64_t first_column, const std::int64_t* targets,
                          double temperature, float* state_max, double* state_sum, double* state_weighted,
                          float* target_logit, Place place) {
  if (tile.rows == 0 || tile.columns == 0) return cudaSuccess;
  const DeviceGuard guard(place.device);
  if (guard.error() != cudaSuccess) return guard.error();
  return with_type_of(tile, [&](auto* data) -> int {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    const Segments segments = Segments::of(tile.columns, kTileSegment);
    const Update<T> of{data,        tile.rows, tile.columns, tile.row_stride, first_column,   targets,
                       temperature, segments,  state_max,    state_sum,       state_weighted, target_logit};
    const LaunchShape shape{dim3(grid_for(tile.rows)), threads_for(segments.count),
                            static_cast<std::size_t>(segments.count) * sizeof(Partial)};
    const auto kernel = state_weighted != nullptr ? update_rows<T, true> : update_rows<T, false>;
    return launch(kernel, shape, stream_of(place), of);
  });
}

}  // namespace rewardkit::cuda
