#include "bindings/module.hpp"

namespace rb = rewardkit::bindings;

PYBIND11_MODULE(_cpu, module) {
  module.doc() = "rewardkit's native kernels for the CPU; call them through rewardkit, which checks the arguments.";
  rb::bind_build_info(module);
  rb::bind_parse(module);
  rb::bind_match(module);
  rb::bind_logprob(module);
  rb::bind_calibration(module);
}
