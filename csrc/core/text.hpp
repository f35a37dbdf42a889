// Primitives on the code points of a Python string, for each width that CPython stores them in (1, 2 or 4 bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rewardkit {

// The data of a Python string as it lies in memory: `size` code points of `width` bytes each.
struct TextView {
  const void* data = nullptr;
  std::int64_t size = 0;
  int width = 1;
};

// Python's str.isspace for one code point.
constexpr bool is_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  if (c < 0x1680) return c == 0x85 || c == 0xa0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

constexpr bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

// The first place in [begin, end) that holds `wanted`, or end.
inline const std::uint8_t* find_unit(const std::uint8_t* begin, const std::uint8_t* end, char32_t wanted) {
  if (wanted > 0xff || begin == end) return end;
  const void* found = std::memchr(begin, static_cast<int>(wanted), static_cast<std::size_t>(end - begin));
  return found == nullptr ? end : static_cast<const std::uint8_t*>(found);
}

template <class Unit>
const Unit* find_unit(const Unit* begin, const Unit* end, char32_t wanted) {
  const Unit unit = static_cast<Unit>(wanted);
  if (unit != wanted) return end;
  constexpr std::ptrdiff_t kBlock = 32;  // a loop of fixed length without a branch in it, which compilers vectorise
  for (; end - begin >= kBlock; begin += kBlock) {
    unsigned any = 0;
    for (std::ptrdiff_t i = 0; i < kBlock; ++i) any |= static_cast<unsigned>(begin[i] == unit);
    if (any != 0) break;
  }
  while (begin != end && *begin != unit) ++begin;
  return begin;
}

template <class Unit>
bool is_blank(const Unit* begin, const Unit* end) {
  while (begin != end && is_space(*begin)) ++begin;
  return begin == end;
}

// Whether the text from `at` on begins with `literal`.
template <class Unit>
bool starts_with(const Unit* at, const Unit* end, const char32_t* literal, std::size_t size) {
  if (static_cast<std::size_t>(end - at) < size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    if (at[i] != literal[i]) return false;
  }
  return true;
}

}  // namespace rewardkit
