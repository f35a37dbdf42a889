// Comparing normal forms: one against one, all answers of a row against all its golds, and classes of answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/match_text.hpp"

namespace rewardkit {

enum class Matcher : std::uint8_t { exact, token_f1, fuzzy };
enum class Linkage : std::uint8_t { join, leader };

struct MatchOptions {
  Matcher matcher = Matcher::exact;
  MatchMode mode = MatchMode::numeric_safe;
  double theta = 0.75;        // the least F1 that is equal
  std::size_t max_extra = 2;  // fuzzy: how many tokens more the longer side may have
  bool yes_no = false;        // token F1: HotpotQA's rule
  bool split_cjk = false;
  const LowerTable* lower = nullptr;  // needed in the official mode for texts beyond ASCII
  const FoldTable* fold = nullptr;    // needed in the numeric-safe mode for them
};

// Texts in order, and where each row's begin. `texts` outlive the calls.
struct TextRows {
  const AnswerText* texts = nullptr;
  const std::int64_t* begins = nullptr;  // [rows + 1]
};

// scores[i]: prediction i against the best of its aliases.
void match_pairs(const AnswerText* predictions, const TextRows& aliases, std::size_t count, const MatchOptions& options,
                 int threads, double* scores);

// The golds of rows: row b has the golds [rows[b], rows[b + 1]), gold g the aliases [begins[g], begins[g + 1]).
struct GoldRows {
  TextRows aliases;
  const std::int64_t* rows = nullptr;  // [B + 1]
};

// scores [B, width, height], 0 where a row has no such answer or gold.
void match_matrix(const TextRows& answers, const GoldRows& golds, std::size_t count, std::size_t width,
                  std::size_t height, const MatchOptions& options, int threads, double* scores);

// correct [B, width] and found [B, height].
void match_sets(const TextRows& answers, const GoldRows& golds, std::size_t count, std::size_t width,
                std::size_t height, const MatchOptions& options, bool distinct, int threads, std::uint8_t* correct,
                std::uint8_t* found);

// classes [B, width]: the index of the first member of each answer's class, -1 where absent.
void answer_classes(const TextRows& answers, std::size_t count, std::size_t width, const MatchOptions& options,
                    Linkage linkage, int threads, std::int64_t* classes);

// F1 of bags of ids, see rewardkit.matching.bag_f1.
template <class Id>
struct BagRows {
  const Id* ids = nullptr;
  const std::int64_t* offsets = nullptr;
  const std::int64_t* rows = nullptr;
};
template <class Id>
void bag_f1(const BagRows<Id>& answers, const BagRows<Id>& golds, std::size_t count, int threads, double* scores);

}  // namespace rewardkit
