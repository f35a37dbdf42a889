// Tokens and their keys. Included where other instruction sets are compiled for, so nothing here may be emitted as a
// function that the linker shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewardkit {

inline constexpr std::uint32_t kTokenNumeric = 1;   // holds a decimal digit
inline constexpr std::uint32_t kTokenOperator = 2;  // is an operator of the numeric-safe form
inline constexpr std::uint32_t kTokenSymbol = 4;    // is an operator, a currency or a unit of the numeric-safe form
inline constexpr std::uint32_t kTokenCjk = 8;       // holds Han or Kana

struct Token {
  std::size_t begin;  // in TokenStore::bytes, UTF-8
  std::size_t size;
  std::uint32_t flags;
};

// Up to seven bytes a key is the token itself; from eight on it is a hash, and equal keys need a look at the bytes.
inline constexpr std::size_t kShortToken = 7;
constexpr bool is_hashed(std::uint64_t key) {
  return (key >> 63) != 0;
}

// Whether two tokens with the same hashed key are the same text. Never inlined into another instruction set's file.
bool same_bytes(const std::uint8_t* bytes, const Token& one, const Token& other);

// The tokens of one text.
struct TokenSpan {
  const std::uint64_t* keys;
  const Token* tokens;
  std::size_t count;
};

// How many of a's tokens find a partner of their own in b, which has 1 to 64 and is readable for three keys more.
std::size_t common_tokens(const std::uint8_t* bytes, TokenSpan a, TokenSpan b);
std::size_t common_tokens_avx2(const std::uint8_t* bytes, TokenSpan a, TokenSpan b);

}  // namespace rewardkit
