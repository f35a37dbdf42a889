// Parse: from the text of a completion to what it claims.
//
// A format's grammar is data: literal tags with their roles, and the order in which the strict reading wants them.
// Reading is linear in the text, allocates nothing and never fails: what cannot be read is ill-formed, with a reason.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"

namespace rewardkit::parse {

constexpr int kMaxAnswers = 64;

enum class Role : std::uint8_t { think, answer, confidence, analysis, other, wrapper };
constexpr std::size_t kRoles = 6;

enum class Mode : std::uint8_t { strict, lenient, rlcr };
enum class Think : std::uint8_t { required, optional, forbidden, ignore };
enum class StepKind : std::uint8_t { block, each, enter, leave, final };

enum class Reason : std::uint8_t {
  none,
  think_missing,
  think_unclosed,
  think_repeated,
  think_blank,
  think_forbidden,
  text_outside,
  answer_missing,
  confidence_missing,
  analysis_missing,
  other_missing,
  wrapper_missing,
  tag_repeated,
  tag_unexpected,
  tag_unclosed,
  answer_blank,
  too_few_answers,
  too_many_answers,
  number_invalid,
  number_out_of_range,
  weights_bad_sum,
  weights_all_zero,
};
constexpr std::size_t kReasons = 22;
const char* to_string(Reason reason);

// One literal tag. A numbered one is `prefix`, a number from 1 without leading zeros, `suffix`.
struct Tag {
  Role role = Role::answer;
  bool opens = true;
  bool numbered = false;
  std::u32string prefix;
  std::u32string suffix;
};

struct Step {
  StepKind kind = StepKind::block;
  std::vector<Role> roles;
};

class Grammar {
 public:
  // Throws std::invalid_argument where a tag is empty or the text after a number begins with a digit.
  Grammar(std::vector<Tag> tags, std::vector<Step> steps);

  const std::vector<Tag>& tags() const { return tags_; }              // the longer literals first
  const std::vector<Tag>& think_tags() const { return think_tags_; }  // those that are needed to find the think tags
  const std::vector<Step>& steps() const { return steps_; }
  bool has(Role role) const { return has_[static_cast<std::size_t>(role)]; }
  bool numbered() const { return numbered_; }  // whether answers are numbered
  bool final() const { return steps_.front().kind == StepKind::final; }

 private:
  std::vector<Tag> tags_;
  std::vector<Tag> think_tags_;
  std::vector<Step> steps_;
  std::array<bool, kRoles> has_{};
  bool numbered_ = false;
};

struct Options {
  Mode mode = Mode::strict;
  Think think = Think::required;
  int min_answers = 1;
  int max_answers = 1;  // at most kMaxAnswers
  bool fail_on_bad_sum = true;
  double sum_tol = 0.02;
  std::vector<std::u32string> special_tokens;  // none empty
};

// Where a piece stands: its trimmed content, and the content with its tags. All -1 where there is none.
struct Piece {
  std::int64_t start = -1;
  std::int64_t stop = -1;
  std::int64_t outer_start = -1;
  std::int64_t outer_stop = -1;
  bool found() const { return start >= 0; }
};

// What one completion claims. Answers and confidences that are found stand in the slots 0 .. slots - 1.
struct Reading {
  Reason reason = Reason::none;
  int answers = 0;  // how many answers are not blank
  int slots = 0;
  double other = 0.0;
  Piece think, analysis, other_piece;
  std::array<Piece, kMaxAnswers> answer;
  std::array<Piece, kMaxAnswers> confidence;
  std::array<double, kMaxAnswers> prob;
  std::array<bool, kMaxAnswers> stated;  // whether the slot holds a number that could be read

  bool wellformed() const { return reason == Reason::none; }
};

// Reads one completion into `reading`, which may have been used before.
void read(const TextView& text, const Grammar& grammar, const Options& options, Reading& reading);

}  // namespace rewardkit::parse
