// What only `_emu` has: the order in which the emulator runs threads and blocks, and its counts.
#include "cuda/module.hpp"

#if defined(RK_EMULATOR)
#include "emulator/emulator.hpp"
#endif

namespace py = pybind11;

namespace rewardkit::cuda {

void bind_emulator([[maybe_unused]] py::module_& module) {
#if defined(RK_EMULATOR)
  module.def(
      "set_order", [](std::uint32_t order) { emulator::config().order = order; }, py::arg("order"),
      "Order of threads and blocks from now on: 0 ascending, 1 descending, any other the seed of a random one.");
  module.def("stats", [] {
    const emulator::Stats& stats = emulator::stats();
    py::dict counts;
    counts["launches"] = stats.launches;
    counts["blocks"] = stats.blocks;
    counts["threads"] = stats.threads;
    counts["barriers"] = stats.barriers;
    counts["warp_operations"] = stats.warp_operations;
    counts["last_device"] = stats.last_device;
    return counts;
  });
#endif
}

}  // namespace rewardkit::cuda
