// The multiset intersection of two token lists, once for every instruction set.
#pragma once

#include "core/match_token.hpp"

namespace rewardkit {
namespace {  // a copy of its own in every file

// `hits(key)`: a bit for each key of b that equals it.
template <class Hits>
std::size_t count_common(const std::uint8_t* bytes, TokenSpan a, TokenSpan b, const Hits& hits) {
  std::uint64_t unused = ~std::uint64_t{0} >> (64 - b.count);
  std::size_t common = 0;
  for (std::size_t i = 0; i < a.count; ++i) {
    std::uint64_t found = hits(a.keys[i]) & unused;
    if ((a.keys[i] >> 63) != 0) {
      while (found != 0 && !same_bytes(bytes, a.tokens[i], b.tokens[__builtin_ctzll(found)])) found &= found - 1;
    }
    unused &= ~(found & (~found + 1));
    common += found != 0 ? 1 : 0;
  }
  return common;
}

}  // namespace
}  // namespace rewardkit
