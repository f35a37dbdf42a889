#include "core/match_text.hpp"

#include <utility>

#include "core/match_internal.hpp"

static_assert(std::endian::native == std::endian::little, "token keys are packed for little-endian machines");

namespace rewardkit {
namespace {

std::uint64_t load(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

struct CharFlags {
  bool cjk;
  bool mark;
  bool decimal;
};

}  // namespace

bool same_bytes(const std::uint8_t* bytes, const Token& one, const Token& other) {
  return one.size == other.size && std::memcmp(bytes + one.begin, bytes + other.begin, one.size) == 0;
}

std::uint64_t TokenStore::hashed_key(const std::uint8_t* token, std::size_t size) {
  std::uint64_t hash = kFirstSalt ^ size;
  std::size_t at = 0;
  for (; at + 8 < size; at += 8) hash = mix(hash ^ load(token + at), kSecondSalt);
  return mix(hash ^ load(token + size - 8), kFirstSalt) | std::uint64_t{1} << 63;
}

bool TokenStore::has_digit(const std::uint8_t* token, std::size_t size) {
  return std::any_of(token, token + size, [](std::uint8_t c) { return c >= '0' && c <= '9'; });
}

void TokenStore::trim() {
  constexpr std::size_t kKeep = std::size_t{1} << 20;
  if (bytes_.capacity() > kKeep) bytes_ = {};
  if (keys_.capacity() > kKeep / 8) keys_ = {};
  if (tokens_.capacity() > kKeep / 16) tokens_ = {};
  if (folded_.capacity() > kKeep / 4) folded_ = {};
  marks_ = {};
  split_ = {};
}

TokenList TokenStore::add(const AnswerText& text, MatchMode mode, bool split_cjk, const LowerTable* lower,
                          const FoldTable* fold) {
  const std::size_t first = count_;
  const auto* narrow = static_cast<const std::uint8_t*>(text.data);
  const auto* medium = static_cast<const std::uint16_t*>(text.data);
  const auto* broad = static_cast<const std::uint32_t*>(text.data);
  if (mode == MatchMode::official) {
    if (text.ascii) {
      official_ascii(narrow, text.size);
    } else if (text.width == 1) {
      official_wide(narrow, text.size, *lower);
    } else if (text.width == 2) {
      official_wide(medium, text.size, *lower);
    } else {
      official_wide(broad, text.size, *lower);
    }
  } else {
    if (text.ascii) {
      safe_ascii(narrow, text.size);
    } else if (text.width == 1) {
      safe_wide(narrow, text.size, *fold);
    } else if (text.width == 2) {
      safe_wide(medium, text.size, *fold);
    } else {
      safe_wide(broad, text.size, *fold);
    }
  }
  if (split_cjk && !text.ascii) {
    if (mode == MatchMode::official) {
      split_cjk_tokens(first, [lower](char32_t c) {
        const std::uint32_t flags = LowerTable::flags(lower->entry(c));
        return CharFlags{(flags & kLowerCjk) != 0, (flags & kLowerMark) != 0, (flags & kLowerDecimal) != 0};
      });
    } else {
      split_cjk_tokens(first, [fold](char32_t c) {
        const std::uint8_t bits = fold->class_bits(c);
        return CharFlags{(bits & kClassCjk) != 0, (bits & kClassMark) != 0, is_ascii_digit(c)};
      });
    }
  }
  TokenList list{first, count_ - first, 0, 0};
  for (std::size_t t = first; t < count_; ++t) {
    list.flags |= tokens_[t].flags;
    list.print = (list.print ^ keys_[t]) * 0x9E3779B97F4A7C15u;
  }
  return list;
}

template <class FlagsOf>
void TokenStore::split_cjk_tokens(std::size_t first, const FlagsOf& flags_of) {
  std::size_t parts = 0;
  bool any = false;
  for (std::size_t t = first; t < count_; ++t) any = any || (tokens_[t].flags & kTokenCjk) != 0;
  if (!any) return;
  for (std::size_t t = first; t < count_; ++t) {
    const Token token = tokens_[t];
    if ((token.flags & kTokenCjk) == 0) {
      split_.reserve(parts + 1, parts);
      split_[parts++] = token;
      continue;
    }
    bool joined = false;  // whether the last part is a word that a letter would continue
    for (std::size_t at = 0, step = 0; at < token.size; at += step) {
      const CharFlags is = flags_of(decode_utf8(bytes_.data() + token.begin + at, &step));
      const std::uint32_t number = is.decimal ? kTokenNumeric : 0;
      if (at > 0 && (is.mark || (joined && !is.cjk))) {
        split_[parts - 1].size += step;
        split_[parts - 1].flags |= number;
      } else {
        split_.reserve(parts + 1, parts);
        split_[parts++] = {token.begin + at, step, number};
      }
      if (at == 0 || !is.mark) joined = !is.cjk;
    }
  }
  count_ = first;
  for (std::size_t p = 0; p < parts; ++p) append(split_[p].begin, split_[p].size, split_[p].flags);
}

}  // namespace rewardkit
