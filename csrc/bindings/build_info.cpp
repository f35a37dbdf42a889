#include "bindings/module.hpp"
#include "core/cpu_features.hpp"

namespace py = pybind11;

namespace rewardkit::bindings {

void bind_build_info(py::module_& module) {
  module.def(
      "build_info",
      [] {
        py::dict info;
        info["compiler"] = __VERSION__;
        info["cxx_standard"] = static_cast<long>(__cplusplus);
        info["instruction_set"] = to_string(best_instruction_set());
        return info;
      },
      "Compiler, C++ standard and the instruction set that the kernels will use on this machine.");
}

}  // namespace rewardkit::bindings
