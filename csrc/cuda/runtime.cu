// What devices there are, for `rewardkit info` and for error texts.
#include <cstring>

#include "cuda/launchers.hpp"
#include "cuda/portable.cuh"

namespace rewardkit::cuda {

int device_count(int& count) {
  count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) (void)cudaGetLastError();  // the next launch must not find it
  return error;
}

int device_info(int device, DeviceInfo& info) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return error;
  }
  static_assert(sizeof info.name == sizeof properties.name);
  std::memcpy(info.name, properties.name, sizeof info.name);
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  return cudaSuccess;
}

int runtime_version() {
  int version = 0;
  (void)cudaRuntimeGetVersion(&version);
  return version;
}

int driver_version() {
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  return version;
}

const char* error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace rewardkit::cuda
