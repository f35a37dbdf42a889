#include "core/match.hpp"

#include <algorithm>
#include <vector>

#include "core/assignment.hpp"
#include "core/cpu_features.hpp"
#include "core/match_common.hpp"
#include "core/match_internal.hpp"
#include "core/parallel.hpp"

namespace rewardkit {

std::size_t common_tokens(const std::uint8_t* bytes, TokenSpan a, TokenSpan b) {
  return count_common(bytes, a, b, [=](std::uint64_t key) {
    std::uint64_t found = 0;
    for (std::size_t j = 0; j < b.count; ++j) found |= static_cast<std::uint64_t>(b.keys[j] == key ? 1 : 0) << j;
    return found;
  });
}

namespace {

constexpr std::size_t kBitMask = 64;

double f1_of(std::size_t common, std::size_t a, std::size_t b) {
  if (common == 0) return 0.0;
  const double precision = static_cast<double>(common) / static_cast<double>(a);
  const double recall = static_cast<double>(common) / static_cast<double>(b);
  return 2 * precision * recall / (precision + recall);
}

// What a thread needs to compare the texts of a row.
class Comparer {
 public:
  explicit Comparer(const MatchOptions& options) : options_(options) {
#if defined(__x86_64__)
    vectors_ = best_instruction_set() >= InstructionSet::avx2;
#endif
    store_.start(options.matcher == Matcher::fuzzy);
  }
  ~Comparer() { store_.trim(); }
  Comparer(const Comparer&) = delete;
  Comparer& operator=(const Comparer&) = delete;

  // The texts of the row at hand, and which alias is the first of `named`.
  std::vector<TokenList> given, named;
  std::size_t named_first = 0;
  std::vector<std::uint8_t> relation;

  void start_row() { store_.start(options_.matcher == Matcher::fuzzy); }
  // What has been added up to the mark survives a rewind.
  void mark() { mark_ = store_.position(); }
  void rewind() { store_.rewind(mark_); }
  TokenList add(const AnswerText& text) {
    return store_.add(text, options_.mode, options_.split_cjk, options_.lower, options_.fold);
  }

  double score(TokenList a, TokenList b) {
    switch (options_.matcher) {
      case Matcher::exact:
        return exact(a, b) ? 1.0 : 0.0;
      case Matcher::token_f1:
        return f1(a, b);
      case Matcher::fuzzy:
        return fuzzy(a, b) ? 1.0 : 0.0;
    }
    return 0.0;
  }
  bool equal(TokenList a, TokenList b) {
    switch (options_.matcher) {
      case Matcher::exact:
        return exact(a, b);
      case Matcher::token_f1:
        return f1(a, b) >= options_.theta;
      case Matcher::fuzzy:
        return fuzzy(a, b);
    }
    return false;
  }

 private:
  TokenSpan span(TokenList list) const { return {store_.keys(list), store_.tokens(list), list.count}; }

  bool same_run(TokenList a, TokenList b, std::size_t shift) const {  // a against b from `shift` on
    const std::uint64_t* const a_keys = store_.keys(a);
    const std::uint64_t* const b_keys = store_.keys(b) + shift;
    for (std::size_t i = 0; i < a.count; ++i) {
      if (a_keys[i] != b_keys[i]) return false;
    }
    for (std::size_t i = 0; i < a.count; ++i) {
      if (is_hashed(a_keys[i]) && !same_bytes(store_.bytes(), store_.tokens(a)[i], store_.tokens(b)[i + shift])) {
        return false;
      }
    }
    return true;
  }

  bool exact(TokenList a, TokenList b) const {
    if (a.count != b.count) return false;
    if (a.count == 0) return options_.mode == MatchMode::official;
    return store_.keys(a)[0] == store_.keys(b)[0] && same_run(a, b, 0);
  }

  std::size_t common_few(TokenList a, TokenList b) const {
    const std::uint64_t* const a_keys = store_.keys(a);
    const std::uint64_t* const b_keys = store_.keys(b);
    unsigned used = 0;
    std::size_t both = 0;
    for (std::size_t j = 0; j < b.count; ++j) {
      for (std::size_t i = 0; i < a.count; ++i) {
        if (a_keys[i] != b_keys[j] || (used >> i & 1) != 0) continue;
        if (is_hashed(a_keys[i]) && !same_bytes(store_.bytes(), store_.tokens(a)[i], store_.tokens(b)[j])) continue;
        used |= 1u << i;
        ++both;
        break;
      }
    }
    return both;
  }

  std::size_t common(TokenList a, TokenList b) {
    if (a.count < b.count) std::swap(a, b);
    if (b.count == 0) return 0;
    if (b.count > kBitMask) return common_sorted(a, b);
    if (a.count <= 4) return common_few(a, b);
#if defined(__x86_64__)
    if (vectors_) return common_tokens_avx2(store_.bytes(), span(a), span(b));
#endif
    return common_tokens(store_.bytes(), span(a), span(b));
  }

  // Orders two tokens of the store; 0 for the same text.
  int compare(std::size_t x, std::size_t y) const {
    const std::uint64_t* const keys = store_.keys(TokenList{});
    if (keys[x] != keys[y]) return keys[x] < keys[y] ? -1 : 1;
    if (!is_hashed(keys[x]) || x == y) return 0;
    const Token& one = store_.tokens(TokenList{})[x];
    const Token& other = store_.tokens(TokenList{})[y];
    if (one.size != other.size) return one.size < other.size ? -1 : 1;
    return std::memcmp(store_.bytes() + one.begin, store_.bytes() + other.begin, one.size);
  }
  // The tokens of a list that carry all of these flags, in order of their text.
  void sorted(TokenList list, std::uint32_t flags, std::vector<std::size_t>& order) const {
    order.clear();
    for (std::size_t i = list.first; i < list.first + list.count; ++i) {
      if ((store_.tokens(TokenList{})[i].flags & flags) == flags) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [this](std::size_t x, std::size_t y) { return compare(x, y) < 0; });
  }

  std::size_t common_sorted(TokenList a, TokenList b) {
    sorted(a, 0, order_a_);
    sorted(b, 0, order_b_);
    std::size_t i = 0, j = 0, both = 0;
    while (i < a.count && j < b.count) {
      const int order = compare(order_a_[i], order_b_[j]);
      both += order == 0 ? 1 : 0;
      i += order <= 0 ? 1 : 0;
      j += order >= 0 ? 1 : 0;
    }
    return both;
  }

  double f1(TokenList a, TokenList b) {
    if (options_.yes_no && (is_verdict(a) || is_verdict(b)) &&
        !(a.count == b.count && (a.count == 0 || same_run(a, b, 0)))) {
      return 0.0;
    }
    return f1_of(common(a, b), a.count, b.count);
  }

  bool is_word(TokenList list, const char* word) const {
    return list.count == 1 && store_.tokens(list)[0].size == std::strlen(word) &&
           std::memcmp(store_.bytes() + store_.tokens(list)[0].begin, word, std::strlen(word)) == 0;
  }
  bool is_verdict(TokenList list) const {
    return list.count == 1 && (is_word(list, "yes") || is_word(list, "no") || is_word(list, "noanswer"));
  }

  // Whether the tokens that carry the flag are the same ones, however often each.
  bool same_flagged(TokenList a, TokenList b, std::uint32_t flag) {
    const bool in_a = (a.flags & flag) != 0, in_b = (b.flags & flag) != 0;
    if (!in_a || !in_b) return in_a == in_b;
    sorted(a, flag, order_a_);
    sorted(b, flag, order_b_);
    return order_a_.size() == order_b_.size() &&
           std::equal(order_a_.begin(), order_a_.end(), order_b_.begin(),
                      [this](std::size_t x, std::size_t y) { return compare(x, y) == 0; });
  }

  bool fuzzy(TokenList a, TokenList b) {
    if (exact(a, b)) return true;
    const std::uint32_t both = a.flags & b.flags, either = a.flags | b.flags;
    if ((both & kTokenNumeric) != 0 && !same_flagged(a, b, kTokenNumeric)) return false;
    // No token of the official form carries this one.
    if ((either & kTokenOperator) != 0 && !same_flagged(a, b, kTokenOperator)) return false;
    const std::size_t shared = common(a, b);
    if (f1_of(shared, a.count, b.count) >= options_.theta) return true;
    if (shared < std::min(a.count, b.count)) return false;
    if (a.count > b.count) std::swap(a, b);
    const std::size_t extra = b.count - a.count;
    if (a.count == 0 || extra > options_.max_extra || is_word(a, "yes") || is_word(a, "no")) return false;
    for (std::size_t shift = 0; shift <= extra; ++shift) {
      if (same_run(a, b, shift)) return true;
    }
    return false;
  }

  const MatchOptions& options_;
  TokenStore store_;
  TokenStore::Position mark_;
  std::vector<std::size_t> order_a_, order_b_;
  bool vectors_ = false;
};

// Rows are shared out in blocks, so that a thread's scratch memory serves many of them.
constexpr std::size_t kBlock = 256;

template <class Row>
void for_each_row(std::size_t count, std::int64_t texts, const MatchOptions& options, int threads, const Row& row) {
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  const std::int64_t cost = blocks > 0 ? 64 * texts / static_cast<std::int64_t>(blocks) : 0;
  parallel_for(static_cast<std::int64_t>(blocks), cost, threads, [&](std::int64_t block) {
    Comparer comparer(options);
    const std::size_t first = static_cast<std::size_t>(block) * kBlock;
    for (std::size_t b = first; b < std::min(count, first + kBlock); ++b) {
      row(b, comparer);
    }
  });
}

void prefetch(const AnswerText& text) {
  const char* const at = static_cast<const char*>(text.data);
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}

// The token lists of the texts [first, last) of `count`.
void add_all(const AnswerText* texts, std::size_t count, std::size_t first, std::size_t last, Comparer& comparer,
             std::vector<TokenList>& lists) {
  constexpr std::size_t kAhead = 12;
  lists.clear();
  for (std::size_t t = first; t < last; ++t) {
    if (t + kAhead < count) __builtin_prefetch(texts[t + kAhead].data);
    lists.push_back(comparer.add(texts[t]));
  }
}

std::size_t at(const std::int64_t* begins, std::size_t i) {
  return static_cast<std::size_t>(begins[i]);
}

// Calls pair(k, m, aliases of m) for all answers and golds of a row.
class RowOfSets {
 public:
  RowOfSets(const TextRows& answers, const GoldRows& golds, std::size_t count)
      : answers_(answers),
        golds_(golds),
        count_(count),
        alias_count_(at(golds.aliases.begins, at(golds.rows, count))) {}

  template <class Pair>
  void visit(std::size_t b, Comparer& comparer, const Pair& pair) {
    const std::size_t first_gold = at(golds_.rows, b), last_gold = at(golds_.rows, b + 1);
    const std::size_t first_alias = at(golds_.aliases.begins, first_gold);
    const std::size_t last_alias = at(golds_.aliases.begins, last_gold);
    std::vector<TokenList>& given = comparer.given;
    std::vector<TokenList>& named = comparer.named;
    // The rollouts of a prompt follow each other and have the same reference objects: normalised once.
    if (!same_golds(first_alias, last_alias, comparer.named_first, named.size())) {
      comparer.start_row();
      add_all(golds_.aliases.texts, alias_count_, first_alias, last_alias, comparer, named);
      comparer.named_first = first_alias;
      comparer.mark();
    } else {
      comparer.rewind();
    }
    add_all(answers_.texts, at(answers_.begins, count_), at(answers_.begins, b), at(answers_.begins, b + 1), comparer,
            given);
    for (std::size_t k = 0; k < given.size(); ++k) {
      for (std::size_t g = first_gold; g < last_gold; ++g) {
        pair(k, g - first_gold, given[k], named.data() + at(golds_.aliases.begins, g) - first_alias,
             named.data() + at(golds_.aliases.begins, g + 1) - first_alias);
      }
    }
  }

  std::size_t answers(std::size_t b) const { return at(answers_.begins, b + 1) - at(answers_.begins, b); }
  std::size_t golds(std::size_t b) const { return at(golds_.rows, b + 1) - at(golds_.rows, b); }
  std::int64_t texts() const { return answers_.begins[count_] + static_cast<std::int64_t>(alias_count_); }

 private:
  bool same_golds(std::size_t first, std::size_t last, std::size_t known_first, std::size_t known) const {
    if (known == 0 || last - first != known) return false;
    const AnswerText* const texts = golds_.aliases.texts;
    return std::equal(texts + first, texts + last, texts + known_first,
                      [](const AnswerText& one, const AnswerText& other) { return one.data == other.data; });
  }

  const TextRows& answers_;
  const GoldRows& golds_;
  std::size_t count_, alias_count_;
};

}  // namespace

void match_pairs(const AnswerText* predictions, const TextRows& aliases, std::size_t count, const MatchOptions& options,
                 int threads, double* scores) {
  const std::int64_t texts = static_cast<std::int64_t>(count) + aliases.begins[count];
  for_each_row(count, texts, options, threads, [&](std::size_t i, Comparer& comparer) {
    constexpr std::size_t kAhead = 4;
    if (i + kAhead < count) {
      prefetch(predictions[i + kAhead]);
      prefetch(aliases.texts[aliases.begins[i + kAhead]]);
    }
    comparer.start_row();
    const TokenList prediction = comparer.add(predictions[i]);
    double best = 0.0;
    for (std::size_t t = at(aliases.begins, i); t < at(aliases.begins, i + 1) && best < 1.0; ++t) {
      best = std::max(best, comparer.score(prediction, comparer.add(aliases.texts[t])));
    }
    scores[i] = best;
  });
}

void match_matrix(const TextRows& answers, const GoldRows& golds, std::size_t count, std::size_t width,
                  std::size_t height, const MatchOptions& options, int threads, double* scores) {
  std::fill(scores, scores + count * width * height, 0.0);
  RowOfSets rows(answers, golds, count);
  for_each_row(count, rows.texts(), options, threads, [&](std::size_t b, Comparer& comparer) {
    rows.visit(b, comparer,
               [&](std::size_t k, std::size_t m, TokenList answer, const TokenList* alias, const TokenList* end) {
                 double best = 0.0;
                 for (; alias != end; ++alias) best = std::max(best, comparer.score(answer, *alias));
                 scores[(b * width + k) * height + m] = best;
               });
  });
}

void match_sets(const TextRows& answers, const GoldRows& golds, std::size_t count, std::size_t width,
                std::size_t height, const MatchOptions& options, bool distinct, int threads, std::uint8_t* correct,
                std::uint8_t* found) {
  std::fill(correct, correct + count * width, std::uint8_t{0});
  std::fill(found, found + count * height, std::uint8_t{0});
  RowOfSets rows(answers, golds, count);
  const bool exact = options.matcher == Matcher::exact;
  for_each_row(count, rows.texts(), options, threads, [&](std::size_t b, Comparer& comparer) {
    std::vector<std::uint8_t>& equal = comparer.relation;
    const std::size_t of_row = rows.golds(b);
    equal.assign(rows.answers(b) * of_row, 0);
    rows.visit(b, comparer,
               [&](std::size_t k, std::size_t m, TokenList answer, const TokenList* alias, const TokenList* end) {
                 const bool any = std::any_of(alias, end, [&](const TokenList& list) {
                   return (!exact || list.print == answer.print) && comparer.equal(answer, list);
                 });
                 equal[k * of_row + m] = any ? 1 : 0;
               });
    assign_credit(equal.data(), rows.answers(b), of_row, distinct, correct + b * width, found + b * height);
  });
}

void answer_classes(const TextRows& answers, std::size_t count, std::size_t width, const MatchOptions& options,
                    Linkage linkage, int threads, std::int64_t* classes) {
  std::fill(classes, classes + count * width, std::int64_t{-1});
  for_each_row(count, answers.begins[count], options, threads, [&](std::size_t b, Comparer& comparer) {
    std::vector<TokenList>& lists = comparer.given;
    comparer.start_row();
    add_all(answers.texts, at(answers.begins, count), at(answers.begins, b), at(answers.begins, b + 1), comparer,
            lists);
    std::int64_t* const row = classes + b * width;
    // Equality of normal forms is transitive, so that the first member of a class speaks for it.
    const bool by_leader = linkage == Linkage::leader || options.matcher == Matcher::exact;
    for (std::size_t k = 0; k < lists.size(); ++k) {
      row[k] = static_cast<std::int64_t>(k);
      for (std::size_t j = 0; j < k; ++j) {
        if (by_leader ? row[j] != static_cast<std::int64_t>(j) : row[j] == row[k]) continue;
        if (!comparer.equal(lists[j], lists[k])) continue;
        if (by_leader) {
          row[k] = row[j];
          break;
        }
        const std::int64_t kept = std::min(row[j], row[k]), gone = std::max(row[j], row[k]);
        std::replace(row, row + k + 1, gone, kept);
      }
    }
  });
}

template <class Id>
void bag_f1(const BagRows<Id>& answers, const BagRows<Id>& golds, std::size_t count, int threads, double* scores) {
  std::vector<std::size_t> begins(count + 1, 0);  // of the blocks
  for (std::size_t b = 0; b < count; ++b) {
    begins[b + 1] =
        begins[b] + (at(answers.rows, b + 1) - at(answers.rows, b)) * (at(golds.rows, b + 1) - at(golds.rows, b));
  }
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  const std::int64_t ids = count > 0 ? answers.offsets[answers.rows[count]] + golds.offsets[golds.rows[count]] : 0;
  const std::int64_t cost = blocks > 0 ? 16 * ids / static_cast<std::int64_t>(blocks) : 0;
  parallel_for(static_cast<std::int64_t>(blocks), cost, threads, [&](std::int64_t block) {
    std::vector<Id> given, named;
    const auto copy_sorted = [](const BagRows<Id>& bags, std::size_t b, std::vector<Id>& out) {
      const std::size_t first = at(bags.rows, b), last = at(bags.rows, b + 1);
      const std::size_t origin = at(bags.offsets, first);
      out.assign(bags.ids + origin, bags.ids + at(bags.offsets, last));
      for (std::size_t bag = first; bag < last; ++bag) {
        std::sort(out.begin() + static_cast<std::ptrdiff_t>(at(bags.offsets, bag) - origin),
                  out.begin() + static_cast<std::ptrdiff_t>(at(bags.offsets, bag + 1) - origin));
      }
    };
    const std::size_t first = static_cast<std::size_t>(block) * kBlock;
    for (std::size_t b = first; b < std::min(count, first + kBlock); ++b) {
      copy_sorted(answers, b, given);
      copy_sorted(golds, b, named);
      const std::size_t a0 = at(answers.rows, b), g0 = at(golds.rows, b);
      double* out = scores + begins[b];
      for (std::size_t a = a0; a < at(answers.rows, b + 1); ++a) {
        const Id* const mine = given.data() + at(answers.offsets, a) - at(answers.offsets, a0);
        const std::size_t m = at(answers.offsets, a + 1) - at(answers.offsets, a);
        for (std::size_t g = g0; g < at(golds.rows, b + 1); ++g) {
          const Id* const theirs = named.data() + at(golds.offsets, g) - at(golds.offsets, g0);
          const std::size_t n = at(golds.offsets, g + 1) - at(golds.offsets, g);
          std::size_t i = 0, j = 0, both = 0;
          while (i < m && j < n) {
            const Id x = mine[i], y = theirs[j];
            both += x == y ? 1 : 0;
            i += x <= y ? 1 : 0;
            j += y <= x ? 1 : 0;
          }
          *out++ = f1_of(both, m, n);
        }
      }
    }
  });
}

template void bag_f1(const BagRows<std::int32_t>&, const BagRows<std::int32_t>&, std::size_t, int, double*);
template void bag_f1(const BagRows<std::int64_t>&, const BagRows<std::int64_t>&, std::size_t, int, double*);

}  // namespace rewardkit
