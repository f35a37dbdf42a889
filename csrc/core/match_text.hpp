// Normal forms: a text becomes a list of tokens, and two answers are equal when their lists are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/match_token.hpp"
#include "core/unicode.hpp"

namespace rewardkit {

// A Python string as it lies in memory: `size` code points of `width` (1, 2 or 4) bytes each.
struct AnswerText {
  const void* data = nullptr;
  std::size_t size = 0;
  std::uint8_t width = 1;
  bool ascii = true;
};

enum class MatchMode : std::uint8_t { official, numeric_safe };

// An array that only grows and leaves new elements uninitialised, so that one per thread serves all texts.
template <class T>
class Scratch {
 public:
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t capacity() const { return capacity_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

  // Makes room for `size` elements; the first `kept` survive.
  void reserve(std::size_t size, std::size_t kept) {
    if (size <= capacity_) [[likely]]
      return;
    const std::size_t capacity = std::max(size, capacity_ + capacity_ / 2 + 256);
    auto grown = std::make_unique_for_overwrite<T[]>(capacity);
    if (kept > 0) std::memcpy(grown.get(), data_.get(), kept * sizeof(T));
    data_ = std::move(grown);
    capacity_ = capacity;
  }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t capacity_ = 0;
};

// The tokens of one text: [first, first + count) of a TokenStore.
struct TokenList {
  std::size_t first = 0;
  std::size_t count = 0;
  std::uint32_t flags = 0;  // of any of the tokens
  std::uint64_t print = 0;  // the same for equal lists
};

// The tokens of all texts of a row. One per thread, cleared and not freed between rows.
class TokenStore {
 public:
  // `find_numbers`: whether tokens are to say that they hold a digit, which only fuzzy matching asks for.
  void start(bool find_numbers) {
    used_ = count_ = 0;
    find_numbers_ = find_numbers;
  }
  struct Position {
    std::size_t used = 0;
    std::size_t count = 0;
  };
  Position position() const { return {used_, count_}; }
  void rewind(Position position) {
    used_ = position.used;
    count_ = position.count;
  }

  // Gives back what an unusually long text has taken.
  void trim();

  const std::uint64_t* keys(TokenList list) const { return keys_.data() + list.first; }
  const Token* tokens(TokenList list) const { return tokens_.data() + list.first; }
  const std::uint8_t* bytes() const { return bytes_.data(); }

  // Appends the normal form of a text. A table may be null as long as every text is ASCII.
  TokenList add(const AnswerText& text, MatchMode mode, bool split_cjk, const LowerTable* lower, const FoldTable* fold);

 private:
  template <class Unit>
  friend class SafeScanner;

  void official_ascii(const std::uint8_t* text, std::size_t size);
  void official_piece(std::size_t begin, std::size_t end);
  template <class Unit>
  void official_wide(const Unit* text, std::size_t size, const LowerTable& table);
  void safe_ascii(const std::uint8_t* text, std::size_t size);
  template <class Unit>
  void safe_wide(const Unit* text, std::size_t size, const FoldTable& table);
  template <class Unit>
  std::size_t fold_text(const Unit* text, std::size_t size, const FoldTable& table);
  std::size_t order_marks(std::size_t size, const FoldTable& table);
  void finish_safe(std::size_t first, bool first_spaced);
  void remove_articles(std::size_t first, bool first_spaced);
  void write_plain_number(std::size_t first);
  template <class FlagsOf>
  void split_cjk_tokens(std::size_t first, const FlagsOf& flags_of);

  void append(std::size_t begin, std::size_t size, std::uint32_t flags) {
    count_ += 1;
    tokens_.reserve(count_, count_ - 1);
    keys_.reserve(count_ + kPadding, count_ - 1);
    keys_[count_ - 1] = token_key(bytes_.data() + begin, size);
    if (find_numbers_ && has_digit(bytes_.data() + begin, size)) flags |= kTokenNumeric;
    tokens_[count_ - 1] = {begin, size, flags};
  }
  // Without a branch up to 16 bytes, since nobody foresees how long the next word is. Eight bytes are readable from
  // every byte of a token on, whatever they hold.
  static std::uint64_t token_key(const std::uint8_t* token, std::size_t size) {
    if (size > 16) [[unlikely]]
      return hashed_key(token, size);
    std::uint64_t head, tail;
    std::memcpy(&head, token, sizeof head);
    std::memcpy(&tail, token + (size > 8 ? size - 8 : 0), sizeof tail);
    const std::uint64_t hashed = mix(head ^ kFirstSalt ^ size, tail ^ kSecondSalt) | std::uint64_t{1} << 63;
    const std::uint64_t packed = (head & ~(~std::uint64_t{0} << (8 * size & 63))) | std::uint64_t{size} << 56;
    const std::uint64_t longer = std::uint64_t{0} - static_cast<std::uint64_t>(size > kShortToken);
    return (packed & ~longer) | (hashed & longer);
  }
  static std::uint64_t hashed_key(const std::uint8_t* token, std::size_t size);
  static bool has_digit(const std::uint8_t* token, std::size_t size);

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  static constexpr std::uint64_t kFirstSalt = 0x9E3779B97F4A7C15u, kSecondSalt = 0xA0761D6478BD642Fu;
  static constexpr std::size_t kPadding = 64;  // readable beyond what is used, for whole-vector loads

  Scratch<std::uint8_t> bytes_;
  Scratch<std::uint64_t> keys_;
  Scratch<Token> tokens_;
  Scratch<char32_t> folded_;
  Scratch<char32_t> marks_;
  Scratch<Token> split_;
  std::size_t used_ = 0;   // of bytes_
  std::size_t count_ = 0;  // of tokens_ and keys_
  bool find_numbers_ = false;
};

}  // namespace rewardkit
