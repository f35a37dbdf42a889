// Decimal numerals in text: [+-]?(digits[.digits*]?|.digits)([eE][+-]?digits)?, ASCII only, no "nan", "inf" or "_".
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/text.hpp"

namespace rewardkit {

template <class Unit>
struct Numeral {
  const Unit* end = nullptr;  // where it ends; nullptr where there is none
  double value = 0.0;         // correctly rounded; infinite when too large
  bool integer = false;       // digits alone, with or without a sign
};

namespace detail {

// The value of `digits` (no leading zero) times 10^exponent; `more` says that digits which are not all zero were cut
// off.
inline double decimal_value(const char* digits, std::size_t size, bool more, std::int64_t exponent) {
  constexpr std::int64_t kFar = 100000;
  const std::int64_t magnitude = exponent + static_cast<std::int64_t>(size);
  if (magnitude > 400) return std::numeric_limits<double>::infinity();
  if (magnitude < -400) return 0.0;
  std::array<char, 832> buffer;
  char* at = std::copy(digits, digits + size, buffer.data());
  if (more) {  // a digit that breaks ties upwards, as any number of cut digits would
    *at++ = '1';
    --exponent;
  }
  *at++ = 'e';
  at = std::to_chars(at, buffer.data() + buffer.size(), std::clamp(exponent, -kFar, kFar)).ptr;
  double value = magnitude > 0 ? std::numeric_limits<double>::infinity() : 0.0;  // kept where it is out of range
  std::from_chars(buffer.data(), at, value);
  return value;
}

}  // namespace detail

// Reads the longest numeral that begins at `begin`.
template <class Unit>
Numeral<Unit> read_numeral(const Unit* begin, const Unit* end) {
  // A double's decimal expansion, and that of a midpoint between two, has at most 768 significant digits.
  constexpr std::size_t kDigits = 780;
  constexpr std::int64_t kHuge = std::int64_t{1} << 50;
  static constexpr std::array<double, 23> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  Numeral<Unit> result;
  const Unit* at = begin;
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  const bool leading_dot = at != end && *at == '.';
  if (at == end || !(is_digit(*at) || (leading_dot && end - at > 1 && is_digit(at[1])))) return result;

  std::uint64_t small = 0;  // the value of the significant digits while there are at most 15
  std::size_t significant = 0;
  std::int64_t exponent = 0;
  const Unit* first = nullptr;  // the first significant digit
  bool point = false;
  for (; at != end; ++at) {
    if (is_digit(*at)) {
      if (significant == 0 && *at == '0') {
        exponent -= point;
        continue;
      }
      if (significant == 0) first = at;
      if (significant < 15) small = small * 10 + static_cast<std::uint64_t>(*at - '0');
      ++significant;
      exponent -= point;
    } else if (*at == '.' && !point) {
      point = true;
    } else {
      break;
    }
  }
  const Unit* mantissa_end = at;
  result.integer = !point;
  if (at != end && (*at == 'e' || *at == 'E')) {
    const Unit* digit = at + 1;
    const bool down = digit != end && *digit == '-';
    if (digit != end && (*digit == '-' || *digit == '+')) ++digit;
    if (digit != end && is_digit(*digit)) {
      std::int64_t stated = 0;
      for (; digit != end && is_digit(*digit); ++digit) {
        stated = std::min(kHuge, stated * 10 + static_cast<std::int64_t>(*digit - '0'));
      }
      exponent += down ? -stated : stated;
      at = digit;
      result.integer = false;
    }
  }
  result.end = at;

  double value = 0.0;
  if (significant == 0) {
    value = 0.0;
  } else if (significant <= 15 && exponent >= -22 && exponent <= 22) {
    // Both factors are exact doubles, so that one operation rounds once.
    const double whole = static_cast<double>(small);
    value = exponent < 0 ? whole / kPowers[static_cast<std::size_t>(-exponent)]
                         : whole * kPowers[static_cast<std::size_t>(exponent)];
  } else {
    std::array<char, kDigits> digits;
    std::size_t size = 0;
    bool more = false;
    for (const Unit* digit = first; digit != mantissa_end; ++digit) {
      if (*digit == '.') continue;
      if (size < kDigits) {
        digits[size++] = static_cast<char>(*digit);
      } else {
        more = more || *digit != '0';
      }
    }
    value = detail::decimal_value(digits.data(), size, more, exponent + static_cast<std::int64_t>(significant - size));
  }
  result.value = negative ? -value : value;
  return result;
}

// The leftmost numeral in [begin, end); moves `begin` to where it begins.
template <class Unit>
Numeral<Unit> find_numeral(const Unit*& begin, const Unit* end) {
  for (; begin != end; ++begin) {
    if (*begin > '9' || *begin < '+') continue;
    const Numeral<Unit> found = read_numeral(begin, end);
    if (found.end != nullptr) return found;
  }
  return {};
}

}  // namespace rewardkit
