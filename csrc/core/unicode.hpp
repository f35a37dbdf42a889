// What each code point is to the matchers. The tables come from the interpreter that the process runs in, since its
// Unicode version decides what its own str.lower and re do; the binding fills them before the first text needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rewardkit {

// Planes 0 to 3 and 14; the others hold nothing that has a property.
inline constexpr std::size_t kTabledCodePoints = 0x50000;

constexpr std::size_t table_index(char32_t c) {
  if (c < 0x40000) return c;
  return (c >> 16) == 0xE ? 0x40000 + (c & 0xFFFF) : kTabledCodePoints;
}

// The flags of LowerTable.
inline constexpr std::uint32_t kLowerWord = 1;
inline constexpr std::uint32_t kLowerSpace = 2;
inline constexpr std::uint32_t kLowerDecimal = 4;
inline constexpr std::uint32_t kLowerCased = 8;
inline constexpr std::uint32_t kLowerIgnorable = 16;
inline constexpr std::uint32_t kLowerMark = 32;
inline constexpr std::uint32_t kLowerCjk = 64;
inline constexpr std::uint32_t kLowerDeleted = 128;
inline constexpr std::uint32_t kLowerExpands = 256;

// Lower case and the flags of a code point, as Python's str.lower, re and str.split see it.
struct LowerTable {
  std::vector<std::uint32_t> entries;  // [kTabledCodePoints] lower case in 21 bits, flags above
  std::vector<std::pair<char32_t, std::vector<char32_t>>> longer;

  std::uint32_t entry(char32_t c) const {
    const std::size_t i = table_index(c);
    return i < kTabledCodePoints ? entries[i] : static_cast<std::uint32_t>(c);
  }
  static char32_t lower(std::uint32_t entry) { return entry & 0x1FFFFF; }
  static std::uint32_t flags(std::uint32_t entry) { return entry >> 21; }
};

// The classes of a folded text; the order is that of rewardkit.reference.characters.
enum class CharClass : std::uint8_t { space, word, dot, comma, minus, quote, separator, op, currency, unit };
inline constexpr std::uint8_t kClassMask = 15;
inline constexpr std::uint8_t kClassMark = 16;
inline constexpr std::uint8_t kClassCjk = 32;

enum class FoldKind : std::uint8_t { plain, superscript, subscript, fraction };

struct FoldTable {
  std::vector<std::uint32_t> entries;   // [kTabledCodePoints] form or where it starts, kind, length
  std::vector<char32_t> pool;           // what forms of several code points are made of
  std::vector<std::uint8_t> classes;    // [kTabledCodePoints] class and bits
  std::vector<std::uint8_t> combining;  // [kTabledCodePoints] canonical combining class

  std::uint8_t class_bits(char32_t c) const {
    const std::size_t i = table_index(c);
    return i < kTabledCodePoints ? classes[i] : static_cast<std::uint8_t>(CharClass::word);
  }
  std::uint8_t combining_class(char32_t c) const {
    const std::size_t i = table_index(c);
    return i < kTabledCodePoints ? combining[i] : 0;
  }
};

}  // namespace rewardkit
