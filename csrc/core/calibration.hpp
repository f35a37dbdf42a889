// Counts and exact sums of confidences per bin, per group and per segment. The readable twin of each function, with the
// exact meaning of every output, is rewardkit/reference/calibration.py.
#pragma once

#include <cstdint>

namespace rewardkit {

template <class T>
struct CalibrationInput {
  const T* confidence;
  const std::uint8_t* correct;
  std::int64_t size;
  const T* thresholds;  // bins - 1, ascending
  int bins;
  int fraction_bits;  // 0 to kMaxFractionBits
};

// All outputs are added to: histogram [n_groups, bins, 3], squared_error [n_groups], invalid [n_groups]. groups may be
// null (one group). Returns false, with the outputs half filled, when a group lies outside [0, n_groups).
template <class T>
bool calibration_histogram(const CalibrationInput<T>& input, const std::int64_t* groups, std::int64_t n_groups,
                           std::int64_t* histogram, std::int64_t* squared_error, std::int64_t* invalid);

// Segment s is [offsets[s], offsets[s + 1]); offsets ascend from 0 to size. Outputs [segments].
template <class T>
void segmented_calibration(const CalibrationInput<T>& input, const std::int64_t* offsets, std::int64_t segments,
                           double* ece, double* brier, std::int64_t* count, std::int64_t* invalid);

}  // namespace rewardkit
