#include "bindings/module.hpp"

namespace rewardkit::bindings {

void bind_calibration(pybind11::module_&) {}

}  // namespace rewardkit::bindings
