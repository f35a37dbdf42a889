// What only `_emu` has: kernels with the signatures of their twins, on numpy arrays, for the parity table; the order in
// which the emulator runs threads and blocks; its counts.
#include "cuda/module.hpp"

#if defined(RK_EMULATOR)

#include <pybind11/numpy.h>

#include <cstdint>
#include <vector>

#include "emulator/emulator.hpp"

namespace py = pybind11;

namespace rewardkit::cuda {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using Int64s = Array<std::int64_t>;

constexpr Place kHost{0, nullptr};

template <class T>
py::tuple histogram(const Array<T>& confidence, const Array<std::uint8_t>& correct, const Array<T>& thresholds,
                    const py::object& groups, std::int64_t n_groups, int fraction_bits) {
  const auto size = static_cast<std::int64_t>(confidence.size());
  const int bins = static_cast<int>(thresholds.size()) + 1;
  const Int64s group = groups.is_none() ? Int64s() : groups.cast<Int64s>();
  Int64s counts({static_cast<py::ssize_t>(n_groups), static_cast<py::ssize_t>(bins), py::ssize_t{3}});
  Int64s squared(n_groups), invalid(n_groups);
  std::int64_t refused[2] = {0, 0};
  const CalibrationArrays<T> in{
      confidence.data(), correct.data(), groups.is_none() ? nullptr : group.data(), size, thresholds.data(), bins,
      n_groups,          fraction_bits};
  run("calibration_histogram", kHost, [&](Place place) {
    return calibration_histogram(in, counts.mutable_data(), squared.mutable_data(), invalid.mutable_data(), refused,
                                 place);
  });
  require(refused[0] == 0, "calibration_histogram: a group lies outside [0, n_groups)");
  return py::make_tuple(counts, squared, invalid);
}

template <class Id>
Array<double> bags(const py::array& prediction_ids, const Int64s& prediction_offsets, const py::array& reference_ids,
                   const Int64s& reference_offsets, const Int64s& answer_rows, const Int64s& gold_rows) {
  const auto predictions = py::cast<Array<Id>>(prediction_ids);
  const auto references = py::cast<Array<Id>>(reference_ids);
  const auto rollouts = static_cast<std::int64_t>(answer_rows.size()) - 1;
  std::vector<std::int64_t> pair_rows{0};
  for (std::int64_t b = 0; b < rollouts; ++b) {
    pair_rows.push_back(pair_rows.back() +
                        (answer_rows.at(b + 1) - answer_rows.at(b)) * (gold_rows.at(b + 1) - gold_rows.at(b)));
  }
  Array<double> out(pair_rows.back());
  const Bags<Id> in{predictions.data(), prediction_offsets.data(), references.data(), reference_offsets.data(),
                    answer_rows.data(), gold_rows.data(),          pair_rows.data(),  rollouts,
                    pair_rows.back()};
  run("bag_f1", kHost, [&](Place place) { return bag_f1(in, out.mutable_data(), place); });
  return out;
}

}  // namespace

void bind_emulator(py::module_& module) {
  module.def("calibration_histogram", &histogram<float>, py::arg("confidence").noconvert(), py::arg("correct"),
             py::arg("thresholds"), py::arg("groups").none(true), py::arg("n_groups"), py::arg("fraction_bits"));
  module.def("calibration_histogram", &histogram<double>, py::arg("confidence").noconvert(), py::arg("correct"),
             py::arg("thresholds"), py::arg("groups").none(true), py::arg("n_groups"), py::arg("fraction_bits"));
  module.def(
      "bag_f1",
      [](const py::array& prediction_ids, const Int64s& prediction_offsets, const py::array& reference_ids,
         const Int64s& reference_offsets, const Int64s& answer_rows, const Int64s& gold_rows, int) {
        const auto compare = prediction_ids.itemsize() == 4 ? &bags<std::int32_t> : &bags<std::int64_t>;
        return compare(prediction_ids, prediction_offsets, reference_ids, reference_offsets, answer_rows, gold_rows);
      },
      py::kw_only(), py::arg("prediction_ids"), py::arg("prediction_offsets"), py::arg("reference_ids"),
      py::arg("reference_offsets"), py::arg("answer_rows"), py::arg("gold_rows"), py::arg("threads") = 1);

  module.def(
      "set_order", [](std::uint32_t order) { emulator::config().order = order; }, py::arg("order"),
      "Order of threads and blocks from now on: 0 ascending, 1 descending, any other the seed of a random one.");
  module.def(
      "stats",
      [] {
        const emulator::Stats& stats = emulator::stats();
        py::dict counts;
        counts["launches"] = stats.launches;
        counts["blocks"] = stats.blocks;
        counts["threads"] = stats.threads;
        counts["barriers"] = stats.barriers;
        counts["warp_operations"] = stats.warp_operations;
        counts["last_device"] = stats.last_device;
        return counts;
      },
      "Counts since the module was loaded, and the device of the last launch.");
}

}  // namespace rewardkit::cuda

#else

void rewardkit::cuda::bind_emulator(pybind11::module_&) {}

#endif
