// The words in which the kernels are written, so that nvcc builds them for a device and a C++ compiler for the
// emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(RK_EMULATOR)
#include "emulator/cuda_shim.hpp"
#else
#include <cuda_runtime.h>
#endif

#include "core/host_device.hpp"

#if defined(RK_EMULATOR)
// An array in the block's shared memory, and the block's dynamic shared memory.
#define RK_SHARED_ARRAY(T, name, count) \
  static const char name##_site = 0;    \
  T* const name =                       \
      static_cast<T*>(::rewardkit::emulator::static_shared_array(&name##_site, sizeof(T) * (count), alignof(T)))
#define RK_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::rewardkit::emulator::dynamic_shared_array())
#else
#define RK_SHARED_ARRAY(T, name, count) __shared__ T name[count]
#define RK_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char rk_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(rk_dynamic_shared)
#endif

namespace rewardkit::cuda {

// 16 bytes at once, past the caches that keep data for a second use: every kernel here reads its large input once.
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
#if defined(__CUDA_ARCH__)
  return __ldcs(static_cast<const uint4*>(address));
#elif defined(RK_EMULATOR)
  ::rewardkit::emulator::require_alignment(address, sizeof(uint4));
  uint4 value;
  std::memcpy(&value, address, sizeof value);
  return value;
#else
  return *static_cast<const uint4*>(address);  // never called: nvcc's view of the host
#endif
}

__device__ __forceinline__ void store_16_bytes(void* address, uint4 value) {
#if defined(__CUDA_ARCH__)
  __stcs(static_cast<uint4*>(address), value);
#elif defined(RK_EMULATOR)
  ::rewardkit::emulator::require_alignment(address, sizeof(uint4));
  std::memcpy(address, &value, sizeof value);
#else
  *static_cast<uint4*>(address) = value;
#endif
}

struct LaunchShape {
  dim3 grid;
  unsigned block;
  std::size_t shared_bytes = 0;
};

// Starts a kernel and returns what the runtime says about the launch.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   Arguments... arguments) {
#if defined(RK_EMULATOR)
  (void)stream;
  return ::rewardkit::emulator::launch(reinterpret_cast<const void*>(kernel), shape.grid, dim3(shape.block),
                                       shape.shared_bytes, [&] { kernel(static_cast<Parameters>(arguments)...); });
#else
  // clang-format off: it takes the brackets of a launch for shifts
  kernel<<<shape.grid, dim3(shape.block), shape.shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  // clang-format on
  return cudaGetLastError();
#endif
}

}  // namespace rewardkit::cuda
