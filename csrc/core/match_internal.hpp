// What the two normal forms share: ASCII classified 64 bytes at a time, UTF-8, packed keys of single words.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rewardkit {

constexpr bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_ascii_word(char32_t c) {
  return is_ascii_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_ascii_punctuation(char32_t c) {
  return c > 0x20 && c < 0x7F && !is_ascii_word(c);
}
constexpr bool is_ascii_space(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
}

// The key (see token_key) of a word of at most seven letters.
constexpr std::uint64_t packed_key(const char* word) {
  std::uint64_t key = 0, size = 0;
  for (; word[size] != '\0'; ++size) {
    key |= static_cast<std::uint64_t>(static_cast<unsigned char>(word[size])) << (8 * size);
  }
  return key | size << 56;
}

inline std::size_t encode_utf8(char32_t c, std::uint8_t* out) {
  if (c < 0x80) {
    out[0] = static_cast<std::uint8_t>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<std::uint8_t>(0xC0 | c >> 6);
    out[1] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
    return 2;
  }
  if (c < 0x10000) {  // a lone surrogate too
    out[0] = static_cast<std::uint8_t>(0xE0 | c >> 12);
    out[1] = static_cast<std::uint8_t>(0x80 | (c >> 6 & 0x3F));
    out[2] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
    return 3;
  }
  out[0] = static_cast<std::uint8_t>(0xF0 | c >> 18);
  out[1] = static_cast<std::uint8_t>(0x80 | (c >> 12 & 0x3F));
  out[2] = static_cast<std::uint8_t>(0x80 | (c >> 6 & 0x3F));
  out[3] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
  return 4;
}

inline char32_t decode_utf8(const std::uint8_t* at, std::size_t* size) {
  const auto tail = [at](std::size_t i) { return static_cast<char32_t>(at[i] & 0x3F); };
  const char32_t lead = at[0];
  if (lead < 0x80) {
    *size = 1;
    return lead;
  }
  if (lead < 0xE0) {
    *size = 2;
    return (lead & 0x1F) << 6 | tail(1);
  }
  if (lead < 0xF0) {
    *size = 3;
    return (lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
  }
  *size = 4;
  return (lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
}

// Copies 1 to 64 bytes without a call, in overlapping pieces.
inline void copy_short(const std::uint8_t* from, std::size_t size, std::uint8_t* to) {
  const auto ends = [=]<std::size_t N>(std::integral_constant<std::size_t, N>) {
    std::memcpy(to, from, N);
    std::memcpy(to + size - N, from + size - N, N);
  };
  if (size >= 16) {
    for (std::size_t at = 0; at + 16 <= size; at += 16) std::memcpy(to + at, from + at, 16);
    std::memcpy(to + size - 16, from + size - 16, 16);
  } else if (size >= 8) {
    ends(std::integral_constant<std::size_t, 8>{});
  } else if (size >= 4) {
    ends(std::integral_constant<std::size_t, 4>{});
  } else {
    for (std::size_t i = 0; i < size; ++i) to[i] = from[i];
  }
}

// Which of 64 ASCII bytes are white space, and which are neither that nor letters nor digits.
struct AsciiBlock {
  std::uint64_t space = 0;
  std::uint64_t other = 0;
};

// Writes 16 * parts bytes in lower case, and says what they are; beyond them is white space.
inline AsciiBlock lower_ascii(const std::uint8_t* in, std::uint8_t* out, int parts = 4) {
  AsciiBlock block;
#if defined(__SSE2__)
  const auto between = [](__m128i v, int low, int high) {  // both ends excluded; ASCII is never negative
    return _mm_and_si128(_mm_cmpgt_epi8(v, _mm_set1_epi8(static_cast<char>(low))),
                         _mm_cmpgt_epi8(_mm_set1_epi8(static_cast<char>(high)), v));
  };
  for (int part = 0; part < parts; ++part) {
    __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 16 * part));
    v = _mm_add_epi8(v, _mm_and_si128(between(v, 'A' - 1, 'Z' + 1), _mm_set1_epi8(0x20)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * part), v);
    const __m128i space =
        _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')), _mm_or_si128(between(v, 8, 14), between(v, 0x1B, 0x20)));
    const __m128i word = _mm_or_si128(between(v, 'a' - 1, 'z' + 1), between(v, '0' - 1, '9' + 1));
    const auto bits = [part](__m128i mask) {
      return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(mask))) << (16 * part);
    };
    block.space |= bits(space);
    block.other |= bits(_mm_or_si128(space, word));
  }
  const std::uint64_t read = ~std::uint64_t{0} >> (64 - 16 * parts);
  block.other = ~block.other & read;
  block.space |= ~read;
#else
  for (int i = 0; i < 16 * parts; ++i) {
    const std::uint8_t c = in[i];
    out[i] = static_cast<std::uint8_t>(c >= 'A' && c <= 'Z' ? c + 0x20 : c);
    block.space |= static_cast<std::uint64_t>(is_ascii_space(c)) << i;
    block.other |= static_cast<std::uint64_t>(!is_ascii_space(c) && !is_ascii_word(c)) << i;
  }
  block.space |= parts < 4 ? ~std::uint64_t{0} << (16 * parts) : 0;
#endif
  return block;
}

// Writes an ASCII text in lower case to `out`, which holds its size rounded up to 64 bytes, and calls
// piece(begin, end, plain) for every stretch without white space; `plain` ones are letters and digits only.
template <class Piece>
void for_each_piece(const std::uint8_t* text, std::size_t size, std::uint8_t* out, const Piece& piece) {
  bool inside = false, plain = true;
  std::size_t begin = 0;
  for (std::size_t base = 0; base < size; base += 64) {
    AsciiBlock block;
    if (size - base >= 64) {
      block = lower_ascii(text + base, out + base);
    } else {
      std::uint8_t tail[64];
      const std::size_t rest = size - base;
      const std::size_t parts = (rest + 15) / 16;
      std::memset(tail + 16 * (parts - 1), ' ', 16);
      copy_short(text + base, rest, tail);
      block = lower_ascii(tail, out + base, static_cast<int>(parts));
    }
    std::uint64_t edges = ~block.space ^ (~block.space << 1 | static_cast<std::uint64_t>(inside));
    const auto next = [&edges] {
      const unsigned at = static_cast<unsigned>(std::countr_zero(edges));
      edges &= edges - 1;
      return at;
    };
    if (inside) {
      if (edges == 0) {
        plain = plain && block.other == 0;
        continue;
      }
      const unsigned end = next();
      piece(begin, base + end, plain && (block.other & ((std::uint64_t{1} << end) - 1)) == 0);
      inside = false;
    }
    while (edges != 0) {
      const unsigned first = next();
      const std::uint64_t others = block.other >> first;
      if (edges == 0) {
        inside = true;
        begin = base + first;
        plain = others == 0;
        break;
      }
      const unsigned end = next();
      piece(base + first, base + end, (others & ((std::uint64_t{1} << (end - first)) - 1)) == 0);
    }
  }
  if (inside) piece(begin, size, plain);
}

}  // namespace rewardkit
