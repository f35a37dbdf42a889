// What every launcher does first: make the caller's device current, and turn a dtype into a type.
#pragma once

#include "core/logprob.hpp"
#include "core/softmax.hpp"
#include "cuda/launchers.hpp"
#include "cuda/portable.cuh"

namespace rewardkit::cuda {

// Makes a device current and the previous one current again at the end. Setting it even where it seems current costs
// nothing, and does not trust this copy of the runtime to know what another copy in the process (torch's) last set.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    error_ = cudaGetDevice(&previous_);
    if (error_ == cudaSuccess) error_ = cudaSetDevice(device);
    if (error_ != cudaSuccess) (void)cudaGetLastError();  // reported here; the next launch must not find it
  }
  ~DeviceGuard() {
    if (previous_ >= 0 && previous_ != device_) (void)cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int device_;
  int previous_ = -1;
  cudaError_t error_ = cudaSuccess;
};

inline cudaStream_t stream_of(Place place) {
  return static_cast<cudaStream_t>(place.stream);
}

// Calls run(const T*) with the element type of the logits.
template <class Run>
int with_type_of(const Logits& logits, Run run) {
  switch (logits.dtype) {
    case DType::float32:
      return run(static_cast<const float*>(logits.data));
    case DType::bfloat16:
      return run(static_cast<const BFloat16*>(logits.data));
    case DType::float16:
      return run(static_cast<const Float16*>(logits.data));
  }
  return static_cast<int>(cudaErrorInvalidValue);
}

// Blocks for `tasks` pieces of work that a kernel takes in strides of the grid.
inline unsigned grid_for(std::int64_t tasks) {
  constexpr std::int64_t kMost = 0x7fffffff;
  return static_cast<unsigned>(tasks < kMost ? tasks : kMost);
}

}  // namespace rewardkit::cuda
