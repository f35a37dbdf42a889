// One registration function per step: bindings convert, check what would crash, release the GIL and call the core.
#pragma once

#include <pybind11/pybind11.h>

namespace rewardkit::bindings {

void bind_build_info(pybind11::module_& module);
void bind_parse(pybind11::module_& module);
void bind_match(pybind11::module_& module);
void bind_logprob(pybind11::module_& module);
void bind_calibration(pybind11::module_& module);

}  // namespace rewardkit::bindings
