// What the bindings of `_cuda` and `_emu` share.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/launchers.hpp"

namespace rewardkit::cuda {

#if defined(RK_EMULATOR)
inline constexpr bool kEmulated = true;
inline constexpr const char* kBackendName = "emulator";
#else
inline constexpr bool kEmulated = false;
inline constexpr const char* kBackendName = "CUDA";
#endif

template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

inline void require(bool condition, const char* message) {
  if (!condition) throw pybind11::value_error(message);
}

// On the emulator a tensor's memory is the host's, and its device is none.
inline Place place_of(int device, std::uintptr_t stream) {
  return {kEmulated && device < 0 ? 0 : device, at<void>(stream)};
}

void check(int error, const char* kernel, const Place& place);

// Launches without the GIL, and raises what went wrong.
template <class Launch>
void run(const char* kernel, Place place, Launch launch) {
  int error = 0;
  {
    const pybind11::gil_scoped_release release;
    error = launch(place);
  }
  check(error, kernel, place);
}

// Device memory that the caller gives. The emulator makes its own where none is given, so that every call of its tests
// takes the path that needs it.
class Workspace {
 public:
  Workspace(std::uintptr_t given, std::size_t bytes) : data_(at<void>(given)) {
    if (kEmulated && given == 0 && bytes > 0) {
      own_.resize((bytes + sizeof(double) - 1) / sizeof(double));
      data_ = own_.data();
    }
  }
  void* data() const { return data_; }

 private:
  std::vector<double> own_;
  void* data_;
};

void bind_arrays(pybind11::module_& module);
void bind_emulator(pybind11::module_& module);  // its controls; nothing in `_cuda`

}  // namespace rewardkit::cuda
