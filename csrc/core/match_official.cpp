// The official normal form: SQuAD's evaluation script, equal to its Python on every string.
#include "core/match_internal.hpp"
#include "core/match_text.hpp"

namespace rewardkit {

namespace {

constexpr std::uint64_t kA = packed_key("a"), kAn = packed_key("an"), kThe = packed_key("the");

bool is_article(const std::uint8_t* text, std::size_t size) {
  return (size == 1 && text[0] == 'a') || (size == 2 && text[0] == 'a' && text[1] == 'n') ||
         (size == 3 && text[0] == 't' && text[1] == 'h' && text[2] == 'e');
}

}  // namespace

void TokenStore::official_ascii(const std::uint8_t* text, std::size_t size) {
  const std::size_t origin = used_;
  bytes_.reserve(used_ + size + 2 * kPadding, used_);
  used_ += (size + 63) / 64 * 64;
  std::uint8_t* const out = bytes_.data() + origin;
  for_each_piece(text, size, out, [this, origin](std::size_t begin, std::size_t end, bool plain) {
    if (!plain) {
      const std::uint8_t* const piece = bytes_.data() + origin;
      while (end > begin && is_ascii_punctuation(piece[end - 1])) --end;  // "Paris." is a plain word too
      if (!std::all_of(piece + begin, piece + end, is_ascii_word)) {
        official_piece(origin + begin, origin + end);
        return;
      }
      if (end == begin) return;
    }
    // Written first and counted after, since no branch predictor knows where the next article stands.
    append(origin + begin, end - begin, 0);
    const std::uint64_t key = keys_[count_ - 1];
    count_ -= static_cast<std::size_t>(key == kA) + static_cast<std::size_t>(key == kAn) +
              static_cast<std::size_t>(key == kThe);
  });
}

void TokenStore::official_piece(std::size_t begin, std::size_t end) {
  std::uint8_t* const bytes = bytes_.data();
  std::size_t write = begin, token = begin, run = begin;  // a run: word characters, as \b sees them
  const auto end_run = [&] {
    if (is_article(bytes + run, write - run)) {
      if (run > token) append(token, run - token, 0);
      token = write;
    }
    run = write;
  };
  for (std::size_t read = begin; read < end; ++read) {
    const std::uint8_t c = bytes[read];
    if (is_ascii_word(c)) {
      bytes[write++] = c;
    } else if (c < 0x20 || c == 0x7F) {  // a control is no word character, and stays
      end_run();
      bytes[write++] = c;
      run = write;
    }
  }
  end_run();
  if (write > token) append(token, write - token, 0);
}

// ---- official: everything else
// ----------------------------------------------------------------------------------------

template <class Unit>
void TokenStore::official_wide(const Unit* text, std::size_t size, const LowerTable& table) {
  bytes_.reserve(used_ + 4 * size + 2 * kPadding, used_);
  std::uint8_t* const bytes = bytes_.data();
  std::size_t write = used_, token = write, run = write;
  std::uint32_t flags = 0;
  const auto end_run = [&] {
    if (write - run <= 3 && is_article(bytes + run, write - run)) {
      if (run > token) append(token, run - token, flags);
      token = write;
      flags = 0;
    }
    run = write;
  };
  const auto feed = [&](char32_t c, std::uint32_t is) {
    if ((is & kLowerDeleted) != 0) return;
    if ((is & kLowerWord) != 0) {
      if ((is & (kLowerDecimal | kLowerCjk)) != 0) {
        flags |= ((is & kLowerDecimal) != 0 ? kTokenNumeric : 0) | ((is & kLowerCjk) != 0 ? kTokenCjk : 0);
      }
      write += encode_utf8(c, bytes + write);
      return;
    }
    end_run();
    if ((is & kLowerSpace) != 0) {
      if (write > token) append(token, write - token, flags);
      token = run = write;
      flags = 0;
      return;
    }
    if ((is & kLowerCjk) != 0) flags |= kTokenCjk;
    write += encode_utf8(c, bytes + write);
    run = write;
  };
  const auto flags_at = [&](std::size_t i) { return LowerTable::flags(table.entry(static_cast<char32_t>(text[i]))); };
  for (std::size_t i = 0; i < size; ++i) {
    const char32_t c = static_cast<char32_t>(text[i]);
    const std::uint32_t entry = table.entry(c);
    const std::uint32_t is = LowerTable::flags(entry);
    if (c == 0x3A3) {  // capital sigma: final after a cased letter and before none, whatever may be ignored between
      std::size_t before = i, after = i + 1;
      while (before > 0 && (flags_at(before - 1) & kLowerIgnorable) != 0) --before;
      bool final = before > 0 && (flags_at(before - 1) & kLowerCased) != 0;
      if (final) {
        while (after < size && (flags_at(after) & kLowerIgnorable) != 0) ++after;
        final = after == size || (flags_at(after) & kLowerCased) == 0;
      }
      feed(final ? 0x3C2 : 0x3C3, is);
    } else if ((is & kLowerExpands) != 0) {
      for (const auto& [code, lower] : table.longer) {
        if (code != c) continue;
        for (const char32_t part : lower) feed(part, LowerTable::flags(table.entry(part)));
      }
    } else {
      feed(LowerTable::lower(entry), is);
    }
  }
  end_run();
  if (write > token) append(token, write - token, flags);
  used_ = write;
}

template void TokenStore::official_wide(const std::uint8_t*, std::size_t, const LowerTable&);
template void TokenStore::official_wide(const std::uint16_t*, std::size_t, const LowerTable&);
template void TokenStore::official_wide(const std::uint32_t*, std::size_t, const LowerTable&);

}  // namespace rewardkit
