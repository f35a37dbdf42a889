#include "bindings/module.hpp"

namespace rewardkit::bindings {

void bind_parse(pybind11::module_&) {}

}  // namespace rewardkit::bindings
