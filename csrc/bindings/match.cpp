#include "bindings/module.hpp"

namespace rewardkit::bindings {

void bind_match(pybind11::module_&) {}

}  // namespace rewardkit::bindings
