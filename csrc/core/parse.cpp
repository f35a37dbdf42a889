#include "core/parse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/numeral.hpp"

namespace rewardkit::parse {
namespace {

Reason missing(Role role) {
  switch (role) {
    case Role::answer:
      return Reason::answer_missing;
    case Role::confidence:
      return Reason::confidence_missing;
    case Role::analysis:
      return Reason::analysis_missing;
    case Role::other:
      return Reason::other_missing;
    case Role::wrapper:
      return Reason::wrapper_missing;
    case Role::think:
      break;
  }
  return Reason::think_missing;
}

template <class Unit>
struct Span {
  const Unit* begin;
  const Unit* end;
  bool empty() const { return begin == end; }
};

template <class Unit>
void trim(const Unit*& begin, const Unit*& end) {
  while (end != begin && is_space(end[-1])) --end;
  while (begin != end && is_space(*begin)) ++begin;
}

// A tag in the text; `begin` is nullptr where there are no more.
template <class Unit>
struct Token {
  const Unit* begin = nullptr;
  const Unit* end = nullptr;
  Role role = Role::think;
  bool opens = false;
  int number = 0;  // 0 where the tag has none
  explicit operator bool() const { return begin != nullptr; }
  bool is(Role wanted_role, int wanted_number, bool wanted_opens) const {
    return begin != nullptr && role == wanted_role && number == wanted_number && opens == wanted_opens;
  }
};

// Finds the tags from left to right. Where two literals match at one place, the longer one counts.
template <class Unit>
class Scanner {
 public:
  Scanner(const std::vector<Tag>& tags, const Unit* begin, const Unit* end) : tags_(tags), at_(begin), end_(end) {
    first_ = tags.empty() ? 0 : tags.front().prefix.front();
    for (const Tag& tag : tags) one_first_ = one_first_ && tag.prefix.front() == first_;
  }

  // Moves `token` to the next tag; false, and a token that is none, where there is no more. (Tokens are filled in
  // place: returned by value, they cost a stalled load each.)
  bool next(Token<Unit>& token) {
    while (at_ != end_) {
      if (one_first_) {
        at_ = find_unit(at_, end_, first_);
        if (at_ == end_) break;
      }
      for (const Tag& tag : tags_) {
        if (matches(tag, token)) {
          at_ = token.end;
          return true;
        }
      }
      ++at_;
    }
    token.begin = nullptr;
    return false;
  }

 private:
  bool matches(const Tag& tag, Token<Unit>& token) const {
    if (!starts_with(at_, end_, tag.prefix.data(), tag.prefix.size())) return false;
    const Unit* at = at_ + tag.prefix.size();
    int number = 0;
    if (tag.numbered) {
      if (at == end_ || *at == '0') return false;
      constexpr int kDigits = 9;
      int digits = 0;
      for (; digits < kDigits && at != end_ && is_digit(*at); ++digits, ++at) {
        number = number * 10 + static_cast<int>(*at - '0');
      }
      if (digits == 0 || !starts_with(at, end_, tag.suffix.data(), tag.suffix.size())) return false;
      at += tag.suffix.size();
    }
    token.begin = at_;
    token.end = at;
    token.role = tag.role;
    token.opens = tag.opens;
    token.number = number;
    return true;
  }

  const std::vector<Tag>& tags_;
  const Unit* at_;
  const Unit* end_;
  char32_t first_;
  bool one_first_ = true;
};

// ---- numbers ----

struct Number {
  double value = 0.0;
  bool stated = false;
};

Number probability(double value) {
  if (!(value >= 0.0 && value <= 1.0)) return {};
  return {value + 0.0, true};  // -0.0 becomes 0.0
}

double percent_or_fraction(double value) {
  return value > 1.0 && value <= 100.0 ? value / 100.0 : value;
}

template <class Unit>
Reason strict_number(Span<Unit> text, double& value) {
  const Numeral<Unit> numeral = read_numeral(text.begin, text.end);
  if (numeral.end == nullptr || numeral.end != text.end) return Reason::number_invalid;
  const Number number = probability(numeral.value);
  value = number.value;
  return number.stated ? Reason::none : Reason::number_out_of_range;
}

// Whether the text begins with a lower-case word, in any ASCII case; if so, moves `at` behind it.
template <class Unit>
bool skip_word(const Unit*& at, const Unit* end, std::u32string_view word) {
  if (end - at < static_cast<std::ptrdiff_t>(word.size())) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char32_t c = at[i];
    if (c != word[i] && !(c >= 'A' && c <= 'Z' && c + ('a' - 'A') == word[i])) return false;
  }
  at += word.size();
  return true;
}

// The first number in the text. `x %` is x/100, `a/b` is a/b, and so are `x percent` and `a out of b`; a bare x in (1,
// 100] is x/100.
template <class Unit>
Number lenient_number(Span<Unit> text) {
  constexpr char32_t kMinus = 0x2212;
  const Unit* begin = text.begin;
  const Numeral<Unit> numeral = find_numeral(begin, text.end);
  if (numeral.end == nullptr) return {};
  const double value = begin != text.begin && begin[-1] == kMinus ? -numeral.value : numeral.value;
  const auto skip_space = [&](const Unit* at) {
    while (at != text.end && is_space(*at)) ++at;
    return at;
  };
  const Unit* at = numeral.end;
  if (numeral.integer && text.end - at >= 2 && (*at == ',' || *at == '_') && is_digit(at[1])) {
    return {};  // a decimal comma or grouped digits: 0,85 is not 0
  }
  at = skip_space(at);
  if (skip_word(at, text.end, U"%") || skip_word(at, text.end, U"percent")) return probability(value / 100.0);
  if (skip_word(at, text.end, U"/") || skip_word(at, text.end, U"out of")) {
    const Numeral<Unit> below = read_numeral(skip_space(at), text.end);
    if (below.end != nullptr) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const bool finite = std::abs(value) < kInfinity && below.value > 0.0 && below.value < kInfinity;
      return finite ? probability(value / below.value) : Number{};
    }
  }
  return probability(percent_or_fraction(value));
}

template <class Unit>
Number rlcr_number(Span<Unit> text) {
  const Numeral<Unit> numeral = find_numeral(text.begin, text.end);
  return numeral.end == nullptr ? Number{} : probability(percent_or_fraction(numeral.value));
}

// ---- one completion ----

template <class Unit>
class Reader {
 public:
  Reader(const Unit* begin, const Unit* end, const Grammar& grammar, const Options& options, Reading& reading)
      : origin_(begin), begin_(begin), end_(end), grammar_(grammar), options_(options), reading_(reading) {}

  Reason read() {
    strip_special_tokens();
    Reason reason = options_.think == Think::ignore ? Reason::none : cut_thinking();
    if (reason != Reason::none) return reason;
    if (grammar_.final()) {
      reason = read_final();
    } else if (options_.mode == Mode::strict) {
      reason = Strict(*this).read();
    } else {
      reason = collect();
    }
    if (reason == Reason::none && grammar_.has(Role::other)) reason = normalise_weights();
    return reason;
  }

 private:
  Piece piece(const Unit* outer_begin, const Unit* inner_begin, const Unit* inner_end, const Unit* outer_end) const {
    trim(inner_begin, inner_end);
    return {inner_begin - origin_, inner_end - origin_, outer_begin - origin_, outer_end - origin_};
  }
  Span<Unit> content(const Piece& found) const { return {origin_ + found.start, origin_ + found.stop}; }

  // The next tag of what follows the think block; think tags that are to be ignored are text like any other.
  static bool next_tag(Scanner<Unit>& scanner, Token<Unit>& token) {
    while (scanner.next(token)) {
      if (token.role != Role::think) return true;
    }
    return false;
  }

  void strip_special_tokens() {
    for (bool again = true; again;) {
      const Unit* begin = begin_;
      const Unit* end = end_;
      trim(begin, end);
      again = false;
      for (const std::u32string& token : options_.special_tokens) {
        const auto size = static_cast<std::ptrdiff_t>(token.size());
        if (end - begin_ >= size && starts_with(end - size, end, token.data(), token.size())) {
          end_ = end - size;
          again = true;
          break;
        }
      }
    }
  }

  // Checks the think block, and lets the text begin after the last closing tag.
  Reason cut_thinking() {
    Token<Unit> token, first_open, last_open, last_close;
    std::int64_t opening = 0, closing = 0;
    Scanner<Unit> scanner(grammar_.think_tags(), begin_, end_);
    while (scanner.next(token)) {
      if (token.role != Role::think) continue;
      if (options_.think == Think::forbidden) return Reason::think_forbidden;
      if (!token.opens) {
        ++closing;
        last_close = token;
      } else {
        if (opening++ == 0) first_open = token;
        last_open = token;
      }
    }
    if (opening > 0 && (closing == 0 || last_open.begin > last_close.begin)) return Reason::think_unclosed;
    if (closing == 0) return options_.think == Think::required ? Reason::think_missing : Reason::none;
    const Unit* outer = opening > 0 ? first_open.begin : begin_;
    const Unit* inner = opening > 0 ? first_open.end : begin_;
    if (options_.mode == Mode::strict) {
      if (closing > 1 || opening > 1) return Reason::think_repeated;
      if (!is_blank(begin_, outer)) return Reason::text_outside;
      if (is_blank(inner, last_close.begin)) return Reason::think_blank;
    }
    reading_.think = piece(outer, inner, last_close.begin, last_close.end);
    begin_ = last_close.end;
    return Reason::none;
  }

  // Each tag once, in order, with nothing but white space between; the first fault from the left is the reason.
  class Strict {
   public:
    explicit Strict(Reader& reader)
        : reader_(reader), scanner_(reader.grammar_.tags(), reader.begin_, reader.end_), at_(reader.begin_) {
      next_tag(scanner_, token_);
    }

    Reason read() {
      int count = -1;
      for (const Step& step : reader_.grammar_.steps()) {
        Reason reason = Reason::none;
        switch (step.kind) {
          case StepKind::block:
            reason = block(step.roles[0], 0);
            break;
          case StepKind::enter:
            reason = expect(step.roles[0], 0);
            if (reason == Reason::none) take();
            break;
          case StepKind::leave:
            reason = leave(step.roles[0]);
            break;
          case StepKind::each:
            reason = each(step.roles, count);
            break;
          case StepKind::final:
            break;
        }
        if (reason != Reason::none) return reason;
      }
      if (text_before_token()) return Reason::text_outside;
      return token_ ? unexpected(Reason::tag_unexpected) : Reason::none;
    }

   private:
    Reason each(const std::vector<Role>& roles, int& count) {
      const int limit = count < 0 ? reader_.options_.max_answers : count;
      int n = 0;
      for (;;) {
        if (text_before_token()) return Reason::text_outside;
        if (!token_ || !token_.opens || token_.role != roles[0] || token_.number <= n) break;
        if (token_.number > limit) {
          return roles[0] == Role::answer ? Reason::too_many_answers : Reason::tag_unexpected;
        }
        ++n;
        for (const Role role : roles) {
          const Reason reason = block(role, n);
          if (reason != Reason::none) return reason;
        }
      }
      if (count >= 0) return n < count ? unexpected(missing(roles[0])) : Reason::none;
      count = n;
      if (n >= reader_.options_.min_answers) return Reason::none;
      return unexpected(n == 0 ? Reason::answer_missing : Reason::too_few_answers);
    }

    Reason leave(Role role) {
      if (text_before_token()) return Reason::text_outside;
      if (!token_.is(role, 0, false)) return unexpected(Reason::tag_unclosed);
      take();
      return Reason::none;
    }

    Reason expect(Role role, int number) {
      if (text_before_token()) return Reason::text_outside;
      return token_.is(role, number, true) ? Reason::none : unexpected(missing(role));
    }

    Reason block(Role role, int number) {
      const Reason reason = expect(role, number);
      if (reason != Reason::none) return reason;
      const Unit* outer = token_.begin;
      const Unit* inner = token_.end;
      take();
      if (!token_.is(role, number, false)) return Reason::tag_unclosed;
      const Piece found = reader_.piece(outer, inner, token_.begin, token_.end);
      take();
      return store(role, number, found);
    }

    Reason store(Role role, int number, const Piece& found) {
      Reading& reading = reader_.reading_;
      const auto slot =
          static_cast<std::size_t>(std::max(number, 1) - 1);  // a tag without a number stands in the first
      switch (role) {
        case Role::answer:
          reading.answer[slot] = found;
          if (found.start == found.stop) return Reason::answer_blank;
          ++reading.answers;
          reading.slots = std::max(reading.slots, static_cast<int>(slot) + 1);
          return Reason::none;
        case Role::confidence:
          reading.confidence[slot] = found;
          reading.stated[slot] = true;
          return strict_number(reader_.content(found), reading.prob[slot]);
        case Role::other:
          reading.other_piece = found;
          return strict_number(reader_.content(found), reading.other);
        case Role::analysis:
          reading.analysis = found;
          break;
        case Role::think:
        case Role::wrapper:
          break;
      }
      return Reason::none;
    }

    // What is wrong when the next token is not the one that is due; `otherwise` where nothing else is.
    Reason unexpected(Reason otherwise) const {
      if (!token_) return otherwise;
      if (!token_.opens) return token_.role == Role::wrapper ? otherwise : Reason::tag_unexpected;
      return done() ? Reason::tag_repeated : otherwise;
    }

    // Whether the next token's tag was opened before. Numbered tags come in order, so that the highest number says it.
    bool done() const {
      const auto role = static_cast<std::size_t>(token_.role);
      return seen_[role] && token_.number <= highest_[role];
    }

    bool text_before_token() const { return !is_blank(at_, token_ ? token_.begin : reader_.end_); }

    void take() {
      const auto role = static_cast<std::size_t>(token_.role);
      seen_[role] = true;
      highest_[role] = std::max(highest_[role], token_.number);
      at_ = token_.end;
      next_tag(scanner_, token_);
    }

    Reader& reader_;
    Scanner<Unit> scanner_;
    const Unit* at_;
    Token<Unit> token_;
    std::array<bool, kRoles> seen_{};
    std::array<int, kRoles> highest_{};
  };

  // The last complete block of each tag counts, in any order. A block is an opening tag and the closing tag that
  // directly follows it; in RLCR's released reading, the first opening tag and the next closing one, whatever stands
  // between.
  Reason collect() {
    const bool lazy = options_.mode == Mode::rlcr;
    const int slots = grammar_.numbered() ? options_.max_answers : 1;
    std::array<Token<Unit>, kRoles> open{};
    std::array<bool, kMaxAnswers> opened{};
    int used = 0;                // slots up to here are not blank
    const Unit* last = nullptr;  // where the tag before this one begins
    Token<Unit> token;
    Scanner<Unit> scanner(grammar_.tags(), begin_, end_);
    for (; next_tag(scanner, token); last = token.begin) {
      const int slot = std::max(token.number, 1) - 1;
      Token<Unit>& begin = open[static_cast<std::size_t>(token.role)];
      if (token.opens) {
        if (token.role == Role::wrapper) {  // a later list replaces an earlier one as a whole
          for (int i = 0; i < used; ++i) clear_slot(i, opened);
          used = 0;
          reading_.analysis = reading_.other_piece = {};
          continue;
        }
        if (slot < slots) {
          used = std::max(used, slot + 1);
          if (token.role == Role::answer) opened[static_cast<std::size_t>(slot)] = true;
        }
        if (!lazy || !begin) begin = token;
      } else if (begin && begin.number == token.number && (lazy || last == begin.begin)) {
        const Piece found = piece(begin.begin, begin.end, token.begin, token.end);
        if (slot < slots) keep(token.role, static_cast<std::size_t>(slot), found);
        begin = {};
      }
    }
    return compact(slots, opened);
  }

  void clear_slot(int slot, std::array<bool, kMaxAnswers>& opened) {
    const auto i = static_cast<std::size_t>(slot);
    reading_.answer[i] = reading_.confidence[i] = {};
    opened[i] = false;
  }

  void keep(Role role, std::size_t slot, const Piece& found) {
    switch (role) {
      case Role::answer:
        reading_.answer[slot] = found;
        break;
      case Role::confidence:
        reading_.confidence[slot] = found;
        break;
      case Role::analysis:
        reading_.analysis = found;
        break;
      case Role::other:
        reading_.other_piece = found;
        break;
      case Role::think:
      case Role::wrapper:
        break;
    }
  }

  // Moves what was found into the first slots, and reads the numbers.
  Reason compact(int slots, const std::array<bool, kMaxAnswers>& opened) {
    const bool lazy = options_.mode == Mode::rlcr;
    Reason lost = Reason::answer_missing;
    double listed = 0.0;
    for (std::size_t from = 0; from < static_cast<std::size_t>(slots); ++from) {
      const Piece answer = reading_.answer[from], confidence = reading_.confidence[from];
      reading_.answer[from] = reading_.confidence[from] = {};
      const bool present = answer.found() && answer.start < answer.stop;
      if (!present && lost == Reason::answer_missing && opened[from]) {
        lost = answer.found() ? Reason::answer_blank : Reason::tag_unclosed;
      }
      if (!present && !lazy) continue;
      const auto to = static_cast<std::size_t>(reading_.slots++);
      reading_.answers += present;
      reading_.answer[to] = answer;
      reading_.confidence[to] = confidence;
      if (confidence.found()) {
        const Number number = lazy ? rlcr_number(content(confidence)) : lenient_number(content(confidence));
        reading_.prob[to] = number.value;
        reading_.stated[to] = number.stated;
        listed += number.value;
      }
    }
    if (reading_.answers == 0) return lost;
    if (grammar_.has(Role::other)) {
      const Number weight = reading_.other_piece.found() ? lenient_number(content(reading_.other_piece)) : Number{};
      reading_.other = weight.stated ? weight.value : std::max(0.0, 1.0 - listed);
    }
    return Reason::none;
  }

  // Weights of hypotheses and Other are made to sum to one, where they nearly do or where that is asked for.
  Reason normalise_weights() {
    double total = 0.0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(reading_.slots); ++i) total += reading_.prob[i];
    total += reading_.other;
    if (!(total > 0.0)) return Reason::weights_all_zero;
    // .01 + .00 + .97 is 0.98, and less than that in floats.
    constexpr double kRounding = 1e-9;
    if (std::abs(total - 1.0) > options_.sum_tol + kRounding && options_.fail_on_bad_sum)
      return Reason::weights_bad_sum;
    for (std::size_t i = 0; i < static_cast<std::size_t>(reading_.slots); ++i) reading_.prob[i] /= total;
    reading_.other /= total;
    return Reason::none;
  }

  // The last line that begins with "Final answer:", or the last balanced \boxed{…}: whichever begins later.
  Reason read_final() {
    const Piece line = final_line(), boxed = last_boxed();
    reading_.answer[0] = line.outer_start > boxed.outer_start ? line : boxed;
    if (!reading_.answer[0].found()) return Reason::answer_missing;
    if (reading_.answer[0].start == reading_.answer[0].stop) return Reason::answer_blank;
    reading_.answers = reading_.slots = 1;
    return Reason::none;
  }

  Piece final_line() const {
    constexpr std::u32string_view kStrictHead = U"Final answer:", kHead = U"final answer:";
    const bool strict = options_.mode == Mode::strict;
    const auto is_markup = [&](char32_t c) { return !strict && (c == '*' || c == '_' || c == '#' || c == '>'); };
    Piece found;
    for (const Unit* at = begin_; at != end_;) {
      const Unit* line_end = at;
      while (line_end != end_ && *line_end != '\n' && *line_end != '\r') ++line_end;
      while (at != line_end && (is_space(*at) || is_markup(*at))) ++at;
      const Unit* inner = at;
      const bool spelled = !strict || starts_with(at, line_end, kStrictHead.data(), kStrictHead.size());
      if (spelled && skip_word(inner, line_end, kHead)) {
        while (inner != line_end && is_markup(*inner)) ++inner;
        found = piece(at, inner, line_end, line_end);
      }
      at = line_end == end_ ? end_ : line_end + 1;
    }
    return found;
  }

  // From the right: the first \boxed{ whose brace is closed further on. A brace behind a backslash is no brace.
  Piece last_boxed() const {
    static constexpr char32_t kBoxed[] = U"\\boxed{";
    constexpr std::ptrdiff_t kSize = sizeof(kBoxed) / sizeof(kBoxed[0]) - 1;
    const auto escaped = [&](const Unit* at) {
      const Unit* slash = at;
      while (slash != begin_ && slash[-1] == '\\') --slash;
      return (at - slash) % 2 == 1;
    };
    std::int64_t closed = 0;
    for (const Unit* at = end_; at != begin_;) {
      --at;
      if ((*at != '{' && *at != '}') || escaped(at)) continue;
      if (*at == '}') {
        ++closed;
      } else if (closed > 0) {
        --closed;
        if (at + 1 - begin_ >= kSize && starts_with(at + 1 - kSize, end_, kBoxed, kSize)) {
          std::int64_t depth = 1;
          const Unit* close = at;
          while (depth > 0) {
            ++close;
            if ((*close == '{' || *close == '}') && !escaped(close)) depth += *close == '{' ? 1 : -1;
          }
          return piece(at + 1 - kSize, at + 1, close, close + 1);
        }
      }
    }
    return {};
  }

  const Unit* origin_;
  const Unit* begin_;
  const Unit* end_;
  const Grammar& grammar_;
  const Options& options_;
  Reading& reading_;
};

void reset(Reading& reading, int max_answers) {
  reading.reason = Reason::none;
  reading.answers = reading.slots = 0;
  reading.other = 0.0;
  reading.think = reading.analysis = reading.other_piece = {};
  const auto count = static_cast<std::size_t>(max_answers);
  std::fill_n(reading.answer.begin(), count, Piece{});
  std::fill_n(reading.confidence.begin(), count, Piece{});
  std::fill_n(reading.prob.begin(), count, 0.0);
  std::fill_n(reading.stated.begin(), count, false);
}

template <class Unit>
Reason read_units(const TextView& text, const Grammar& grammar, const Options& options, Reading& reading) {
  const Unit* begin = static_cast<const Unit*>(text.data);
  return Reader<Unit>(begin, begin + text.size, grammar, options, reading).read();
}

}  // namespace

Grammar::Grammar(std::vector<Tag> tags, std::vector<Step> steps) : tags_(std::move(tags)), steps_(std::move(steps)) {
  if (steps_.empty()) throw std::invalid_argument("a grammar needs a step");
  const auto length = [](const Tag& tag) { return tag.prefix.size() + tag.suffix.size() + (tag.numbered ? 3 : 0); };
  std::stable_sort(tags_.begin(), tags_.end(), [&](const Tag& a, const Tag& b) { return length(a) > length(b); });
  for (const Tag& tag : tags_) {
    if (tag.prefix.empty() || (!tag.suffix.empty() && is_digit(tag.suffix.front()))) {
      throw std::invalid_argument("a tag needs a text before its number, and no digit after it");
    }
    has_[static_cast<std::size_t>(tag.role)] = true;
    numbered_ = numbered_ || (tag.role == Role::answer && tag.numbered);
  }
  // Where no tag can begin inside another, the think tags can be found without looking for the others.
  bool apart = true;
  for (const Tag& tag : tags_) {
    for (const Tag& other : tags_) {
      const char32_t first = other.prefix.front();
      apart = apart && tag.prefix.find(first, 1) == std::u32string::npos &&
              tag.suffix.find(first) == std::u32string::npos && !(tag.numbered && is_digit(first));
    }
  }
  for (const Tag& tag : tags_) {
    if (!apart || tag.role == Role::think) think_tags_.push_back(tag);
  }
}

void read(const TextView& text, const Grammar& grammar, const Options& options, Reading& reading) {
  reset(reading, options.max_answers);
  switch (text.width) {
    case 1:
      reading.reason = read_units<std::uint8_t>(text, grammar, options, reading);
      break;
    case 2:
      reading.reason = read_units<std::uint16_t>(text, grammar, options, reading);
      break;
    default:
      reading.reason = read_units<std::uint32_t>(text, grammar, options, reading);
      break;
  }
}

const char* to_string(Reason reason) {
  static constexpr std::array<const char*, kReasons> kNames = {
      "",
      "think_missing",
      "think_unclosed",
      "think_repeated",
      "think_blank",
      "think_forbidden",
      "text_outside",
      "answer_missing",
      "confidence_missing",
      "analysis_missing",
      "other_missing",
      "wrapper_missing",
      "tag_repeated",
      "tag_unexpected",
      "tag_unclosed",
      "answer_blank",
      "too_few_answers",
      "too_many_answers",
      "number_invalid",
      "number_out_of_range",
      "weights_bad_sum",
      "weights_all_zero",
  };
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace rewardkit::parse
