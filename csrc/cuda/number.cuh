// Sixteen bytes of logits as floats and back, and the exponential that the kernels use.
#pragma once

#include <cmath>
#include <type_traits>

#include "core/softmax.hpp"
#include "cuda/portable.cuh"

namespace rewardkit::cuda {

inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;
inline constexpr float kLowest = -3.402823466e38F;

// 2^x to two units in the last place; 0 below the smallest normal number.
__device__ __forceinline__ float exp2_of(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

__device__ __forceinline__ float widen(float value) {
  return value;
}

__device__ __forceinline__ float widen(BFloat16 value) {
  return to_float(value);
}

__device__ __forceinline__ float widen(Float16 value) {
#if defined(__CUDA_ARCH__)
  float y;  // one instruction instead of the portable dozen
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(value.bits));
  return y;
#else
  return to_float(value);
#endif
}

template <class T>
struct Packed {
  static constexpr int kCount = static_cast<int>(sizeof(uint4) / sizeof(T));

  __device__ __forceinline__ static void unpack(const uint4& raw, float (&out)[kCount]) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      // The upper half of a word needs one instruction this way, and two by way of its 16 bits.
      const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        out[2 * k] = detail::float_of_bits(words[k] << 16);
        out[2 * k + 1] = detail::float_of_bits(words[k] & 0xffff0000U);
      }
    } else {
      T values[kCount];
      std::memcpy(values, &raw, sizeof raw);
#pragma unroll
      for (int k = 0; k < kCount; ++k) out[k] = widen(values[k]);
    }
  }

  __device__ __forceinline__ static uint4 pack(const float (&in)[kCount]) {
    T values[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) values[k] = from_float<T>(in[k]);
    uint4 raw;
    std::memcpy(&raw, values, sizeof raw);
    return raw;
  }
};

// How many elements from `pointer` on lie before the first 16-byte boundary.
template <class T>
__device__ __forceinline__ std::int64_t elements_to_alignment(const T* pointer) {
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer) % sizeof(uint4));
  return past == 0 ? 0 : (static_cast<std::int64_t>(sizeof(uint4)) - past) / static_cast<std::int64_t>(sizeof(T));
}

}  // namespace rewardkit::cuda
