// The bindings of the kernels whose twins take arrays: here the arrays are device memory that the caller has allocated
// and checked, so these have names of their own.
#include <cstdint>
#include <string_view>

#include "core/bins.hpp"
#include "cuda/module.hpp"

namespace py = pybind11;

namespace rewardkit::cuda {
namespace {

using Address = std::uintptr_t;

template <class T>
void histogram_into(Address confidence, Address correct, Address groups, std::int64_t size, Address thresholds,
                    int bins, std::int64_t n_groups, int fraction_bits, Address histogram, Address squared_error,
                    Address invalid, Address refused, Place place) {
  const CalibrationArrays<T> in{at<const T>(confidence),
                                at<const std::uint8_t>(correct),
                                at<const std::int64_t>(groups),
                                size,
                                at<const T>(thresholds),
                                bins,
                                n_groups,
                                fraction_bits};
  run("calibration_histogram", place, [&](Place where) {
    return calibration_histogram(in, at<std::int64_t>(histogram), at<std::int64_t>(squared_error),
                                 at<std::int64_t>(invalid), at<std::int64_t>(refused), where);
  });
}

template <class Id>
void bags_into(Address prediction_ids, Address prediction_offsets, Address reference_ids, Address reference_offsets,
               Address answer_rows, Address gold_rows, Address pair_rows, std::int64_t rollouts, std::int64_t pairs,
               Address out, Place place) {
  const Bags<Id> bags{at<const Id>(prediction_ids),
                      at<const std::int64_t>(prediction_offsets),
                      at<const Id>(reference_ids),
                      at<const std::int64_t>(reference_offsets),
                      at<const std::int64_t>(answer_rows),
                      at<const std::int64_t>(gold_rows),
                      at<const std::int64_t>(pair_rows),
                      rollouts,
                      pairs};
  run("bag_f1", place, [&](Place where) { return bag_f1(bags, at<double>(out), where); });
}

}  // namespace

void bind_arrays(py::module_& module) {
  module.def(
      "calibration_histogram_into",
      [](Address confidence, std::string_view dtype, Address correct, Address groups, std::int64_t size,
         Address thresholds, int bins, std::int64_t n_groups, int fraction_bits, Address histogram,
         Address squared_error, Address invalid, Address refused, int device, Address stream) {
        require(dtype == "float32" || dtype == "float64", "dtype: expected float32 or float64");
        require(size >= 0 && bins >= 1 && n_groups >= 1, "size, bins, n_groups: too small");
        require(fraction_bits >= 0 && fraction_bits <= kMaxFractionBits, "fraction_bits must lie in [0, 48]");
        require((confidence != 0 && correct != 0) || size == 0, "confidence, correct: null pointer");
        require(thresholds != 0 || bins == 1, "thresholds: null pointer");
        require(histogram != 0 && squared_error != 0 && invalid != 0 && refused != 0, "outputs: null pointer");
        const auto into = dtype == "float32" ? &histogram_into<float> : &histogram_into<double>;
        into(confidence, correct, groups, size, thresholds, bins, n_groups, fraction_bits, histogram, squared_error,
             invalid, refused, place_of(device, stream));
      },
      py::arg("confidence"), py::arg("dtype"), py::arg("correct"), py::arg("groups"), py::arg("size"),
      py::arg("thresholds"), py::arg("bins"), py::arg("n_groups"), py::arg("fraction_bits"), py::arg("histogram"),
      py::arg("squared_error"), py::arg("invalid"), py::arg("refused"), py::arg("device"), py::arg("stream"),
      "calibration_histogram on device memory; refused [2] counts rows with a group outside [0, n_groups), and NaNs.");

  module.def(
      "bag_f1_into",
      [](Address prediction_ids, Address prediction_offsets, Address reference_ids, Address reference_offsets,
         std::string_view dtype, Address answer_rows, Address gold_rows, Address pair_rows, std::int64_t rollouts,
         std::int64_t pairs, Address out, int device, Address stream) {
        require(dtype == "int32" || dtype == "int64", "dtype: expected int32 or int64");
        require(rollouts >= 0 && pairs >= 0, "rollouts, pairs: expected sizes of at least 0");
        require((prediction_offsets != 0 && reference_offsets != 0 && answer_rows != 0 && gold_rows != 0 &&
                 pair_rows != 0 && out != 0) ||
                    pairs == 0,
                "offsets, rows, out: null pointer");
        const auto into = dtype == "int32" ? &bags_into<std::int32_t> : &bags_into<std::int64_t>;
        into(prediction_ids, prediction_offsets, reference_ids, reference_offsets, answer_rows, gold_rows, pair_rows,
             rollouts, pairs, out, place_of(device, stream));
      },
      py::arg("prediction_ids"), py::arg("prediction_offsets"), py::arg("reference_ids"), py::arg("reference_offsets"),
      py::arg("dtype"), py::arg("answer_rows"), py::arg("gold_rows"), py::arg("pair_rows"), py::arg("rollouts"),
      py::arg("pairs"), py::arg("out"), py::arg("device"), py::arg("stream"),
      "bag_f1 on device memory; pair_rows [rollouts + 1] is the running sum of answers times golds, pairs its last.");
}

}  // namespace rewardkit::cuda
