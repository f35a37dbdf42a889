// Credit: which answers and which golds a relation between them pairs up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewardkit {

// `equal` is [answers][golds], row-major, 0 or 1. Writes 0 or 1 to correct[answers] and found[golds].
//
// distinct: a maximum bipartite matching, so that a gold credits one answer. Of all such matchings the answers are
// those of the one that credits earlier answers first, and the golds those of the one that finds earlier golds first;
// one matching has both (Mendelsohn and Dulmage), so the counts agree. Otherwise: whatever has an equal on the other
// side.
void assign_credit(const std::uint8_t* equal, std::size_t answers, std::size_t golds, bool distinct,
                   std::uint8_t* correct, std::uint8_t* found);

}  // namespace rewardkit
