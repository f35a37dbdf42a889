// The exact Mann-Whitney statistic. Twin: rewardkit/reference/calibration.py, auroc_counts.
#pragma once

#include <cstdint>

namespace rewardkit {

struct AurocCounts {
  std::int64_t twice_wins;  // 2 * (pairs where the right item scores higher) + tied pairs
  std::int64_t right;
  std::int64_t wrong;
};

// Scores hold no NaN. Allocates 2 * size scores.
template <class T>
AurocCounts auroc_counts(const T* score, const std::uint8_t* correct, std::int64_t size);

}  // namespace rewardkit
