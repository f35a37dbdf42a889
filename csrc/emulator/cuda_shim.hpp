// The slice of CUDA C++ and of its runtime that the kernels and launchers use, for a C++ compiler and the emulator.
// Names and meanings are CUDA's; this is the one header that puts them into the global namespace.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/emulator.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::rewardkit::emulator::current_thread->thread)
#define blockIdx (::rewardkit::emulator::current_thread->block)
#define blockDim (::rewardkit::emulator::current_thread->block_size)
#define gridDim (::rewardkit::emulator::current_thread->grid_size)

#define __syncthreads() \
  ((void)::rewardkit::emulator::block_barrier(0, ::rewardkit::emulator::BarrierVote::count, __FILE__, __LINE__))
#define __syncthreads_count(p) \
  ::rewardkit::emulator::block_barrier((p), ::rewardkit::emulator::BarrierVote::count, __FILE__, __LINE__)
#define __syncthreads_and(p) \
  ::rewardkit::emulator::block_barrier((p), ::rewardkit::emulator::BarrierVote::all, __FILE__, __LINE__)
#define __syncthreads_or(p) \
  ::rewardkit::emulator::block_barrier((p), ::rewardkit::emulator::BarrierVote::any, __FILE__, __LINE__)

namespace rewardkit::emulator {

template <class T>
T shuffle(unsigned mask, T value, int source_lane, const char* name) {
  static_assert(sizeof(T) <= 8 && std::is_arithmetic_v<T>, "CUDA shuffles numbers of up to eight bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(WarpOperation::shuffle, mask, bits, source_lane, name);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace rewardkit::emulator

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  using namespace rewardkit::emulator;
  warp_operation(WarpOperation::barrier, mask, 0, 0, "__syncwarp");
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = rewardkit::emulator::lane_index();
  return rewardkit::emulator::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync");
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = rewardkit::emulator::lane_index();
  const int source = lane + static_cast<int>(delta);
  const bool inside = ((source ^ lane) & ~(width - 1)) == 0;
  return rewardkit::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_down_sync");
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = rewardkit::emulator::lane_index();
  const int source = lane - static_cast<int>(delta);
  const bool inside = source >= (lane & ~(width - 1));
  return rewardkit::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_up_sync");
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = rewardkit::emulator::lane_index();
  const int source = lane ^ lane_mask;
  const bool inside = source < (lane & ~(width - 1)) + width;  // a lower segment may be read, a higher one not
  return rewardkit::emulator::shuffle(mask, value, inside ? source : lane, "__shfl_xor_sync");
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace rewardkit::emulator;
  return static_cast<unsigned>(warp_operation(WarpOperation::ballot, mask, predicate != 0, 0, "__ballot_sync"));
}

inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

// Atomics are relaxed, as on the device: they order nothing but themselves.
template <class T>
T atomicAdd(T* address, T value) {
  rewardkit::emulator::count_atomic();
  if constexpr (std::is_integral_v<T>) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  } else {
    // As integers, which the sanitizer knows as atomics.
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    static_assert(sizeof(T) == sizeof(Bits));
    auto* const bits = reinterpret_cast<Bits*>(address);
    Bits seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
    for (;;) {
      T old;
      std::memcpy(&old, &seen, sizeof old);
      const T sum = old + value;
      Bits wanted;
      std::memcpy(&wanted, &sum, sizeof sum);
      if (__atomic_compare_exchange_n(bits, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
    }
  }
}

inline int atomicSub(int* address, int value) {
  rewardkit::emulator::count_atomic();
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}

template <class T>
T atomicCAS(T* address, T expected, T desired) {
  rewardkit::emulator::count_atomic();
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

template <class T>
T atomicExch(T* address, T value) {
  rewardkit::emulator::count_atomic();
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

template <class T>
T __ldg(const T* address) {
  return *address;
}

// ---- The slice of the runtime that the launchers use ----------------------------------------------------------------

using cudaError_t = int;
using cudaStream_t = void*;

inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr cudaError_t cudaErrorInvalidValue = 1;
inline constexpr cudaError_t cudaErrorInvalidConfiguration = 9;
inline constexpr cudaError_t cudaErrorInvalidDevice = 101;
inline constexpr cudaError_t cudaErrorLaunchFailure = 719;

inline constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  std::size_t totalGlobalMem;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);

namespace rewardkit::emulator {
cudaError_t set_dynamic_shared_limit(const void* kernel, int bytes);
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), int, int value) {
  return rewardkit::emulator::set_dynamic_shared_limit(reinterpret_cast<const void*>(kernel), value);
}
