#include "bindings/module.hpp"

namespace rewardkit::bindings {

void bind_logprob(pybind11::module_&) {}

}  // namespace rewardkit::bindings
