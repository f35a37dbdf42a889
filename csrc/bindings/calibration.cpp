#include "core/calibration.hpp"

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "bindings/module.hpp"
#include "core/auroc.hpp"
#include "core/bins.hpp"

namespace py = pybind11;

namespace rewardkit::bindings {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
Array<T> vector(const py::object& object, const std::string& name) {
  if (!Array<T>::check_(object)) throw py::type_error(name + ": wrong dtype or layout");
  auto array = py::reinterpret_borrow<Array<T>>(object);
  if (array.ndim() != 1) throw py::value_error(name + ": must have one dimension");
  return array;
}

template <class T>
CalibrationInput<T> check_input(const char* function, const Array<T>& confidence, const Array<std::uint8_t>& correct,
                                const Array<T>& thresholds, int fraction_bits) {
  const std::string prefix = std::string(function) + ": ";
  if (confidence.size() != correct.size()) throw py::value_error(prefix + "confidence and correct differ in length");
  if (fraction_bits < 0 || fraction_bits > kMaxFractionBits) {
    throw py::value_error(prefix + "fraction_bits must lie in [0, 48]");
  }
  if (thresholds.size() >= (1 << 24)) throw py::value_error(prefix + "too many bins");
  return {
      confidence.data(), correct.data(), confidence.size(), thresholds.data(), static_cast<int>(thresholds.size()) + 1,
      fraction_bits};
}

template <class T>
py::tuple histogram(const py::object& confidence_, const py::object& correct_, const py::object& thresholds_,
                    const py::object& groups_, std::int64_t n_groups, int fraction_bits) {
  constexpr const char* name = "calibration_histogram";
  const auto confidence = vector<T>(confidence_, "confidence");
  const auto correct = vector<std::uint8_t>(correct_, "correct");
  const auto thresholds = vector<T>(thresholds_, "thresholds");
  const CalibrationInput<T> input = check_input(name, confidence, correct, thresholds, fraction_bits);
  if (n_groups < 1) throw py::value_error("calibration_histogram: n_groups must be at least 1");
  Array<std::int64_t> groups;
  if (!groups_.is_none()) {
    groups = vector<std::int64_t>(groups_, "groups");
    if (groups.size() != confidence.size()) {
      throw py::value_error("calibration_histogram: groups and confidence differ in length");
    }
  }
  Array<std::int64_t> counts(
      {static_cast<py::ssize_t>(n_groups), static_cast<py::ssize_t>(input.bins), py::ssize_t{3}});
  Array<std::int64_t> squared(n_groups), invalid(n_groups);
  bool good = false;
  {
    std::int64_t *cells = counts.mutable_data(), *squares = squared.mutable_data(), *bad = invalid.mutable_data();
    const std::int64_t* group = groups_.is_none() ? nullptr : groups.data();
    const py::gil_scoped_release unlocked;
    std::fill_n(cells, n_groups * input.bins * 3, 0);
    std::fill_n(squares, n_groups, 0);
    std::fill_n(bad, n_groups, 0);
    good = calibration_histogram(input, group, n_groups, cells, squares, bad);
  }
  if (!good) throw py::value_error("calibration_histogram: a group lies outside [0, n_groups)");
  return py::make_tuple(counts, squared, invalid);
}

template <class T>
py::tuple segmented(const py::object& confidence_, const py::object& correct_, const py::object& offsets_,
                    const py::object& thresholds_, int fraction_bits) {
  constexpr const char* name = "segmented_calibration";
  const auto confidence = vector<T>(confidence_, "confidence");
  const auto correct = vector<std::uint8_t>(correct_, "correct");
  const auto offsets = vector<std::int64_t>(offsets_, "offsets");
  const auto thresholds = vector<T>(thresholds_, "thresholds");
  const CalibrationInput<T> input = check_input(name, confidence, correct, thresholds, fraction_bits);
  const std::int64_t segments = offsets.size() - 1;
  bool good = segments >= 0 && offsets.at(0) == 0 && offsets.at(segments) == confidence.size();
  for (std::int64_t s = 0; good && s < segments; ++s) good = offsets.data()[s] <= offsets.data()[s + 1];
  if (!good) {
    throw py::value_error("segmented_calibration: offsets must ascend from 0 to the number of confidences");
  }
  Array<double> ece(segments), brier(segments);
  Array<std::int64_t> count(segments), invalid(segments);
  if (segments > 0) {
    double *errors = ece.mutable_data(), *losses = brier.mutable_data();
    std::int64_t *counts = count.mutable_data(), *bad = invalid.mutable_data();
    const py::gil_scoped_release unlocked;
    segmented_calibration(input, offsets.data(), segments, errors, losses, counts, bad);
  }
  return py::make_tuple(ece, brier, count, invalid);
}

template <class T>
py::tuple auroc(const py::object& score_, const py::object& correct_) {
  const auto score = vector<T>(score_, "score");
  const auto correct = vector<std::uint8_t>(correct_, "correct");
  if (score.size() != correct.size()) throw py::value_error("auroc_counts: score and correct differ in length");
  AurocCounts counts{};
  {
    const py::gil_scoped_release unlocked;
    counts = auroc_counts(score.data(), correct.data(), score.size());
  }
  return py::make_tuple(counts.twice_wins, counts.right, counts.wrong);
}

}  // namespace

void bind_calibration(py::module_& module) {
  module.def(
      "calibration_histogram",
      [](const py::object& confidence, const py::object& correct, const py::object& thresholds,
         const py::object& groups, std::int64_t n_groups, int fraction_bits) {
        return Array<float>::check_(confidence)
                   ? histogram<float>(confidence, correct, thresholds, groups, n_groups, fraction_bits)
                   : histogram<double>(confidence, correct, thresholds, groups, n_groups, fraction_bits);
      },
      py::arg("confidence"), py::arg("correct"), py::arg("thresholds"), py::arg("groups").none(true),
      py::arg("n_groups"), py::arg("fraction_bits"), "Counts and fixed-point sums per group and bin.");
  module.def(
      "segmented_calibration",
      [](const py::object& confidence, const py::object& correct, const py::object& offsets,
         const py::object& thresholds, int fraction_bits) {
        return Array<float>::check_(confidence)
                   ? segmented<float>(confidence, correct, offsets, thresholds, fraction_bits)
                   : segmented<double>(confidence, correct, offsets, thresholds, fraction_bits);
      },
      py::arg("confidence"), py::arg("correct"), py::arg("offsets"), py::arg("thresholds"), py::arg("fraction_bits"),
      "ECE and Brier loss of each segment.");
  module.def(
      "auroc_counts",
      [](const py::object& score, const py::object& correct) {
        return Array<float>::check_(score) ? auroc<float>(score, correct) : auroc<double>(score, correct);
      },
      py::arg("score"), py::arg("correct"), "The Mann-Whitney statistic, exact.");
}

}  // namespace rewardkit::bindings
