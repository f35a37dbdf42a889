// The numeric-safe normal form. docs/matching.md says what it does and why; rewardkit.reference.match is its twin.
#include <array>

#include "core/match_internal.hpp"
#include "core/match_text.hpp"

namespace rewardkit {
namespace {

constexpr std::uint64_t kA = packed_key("a"), kAn = packed_key("an"), kThe = packed_key("the"),
                        kAnd = packed_key("and"), kOr = packed_key("or");

constexpr std::array<CharClass, 128> ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (std::size_t c = 0; c < classes.size(); ++c) {
    classes[c] = is_ascii_word(static_cast<char32_t>(c)) ? CharClass::word
                 : c < 0x21 || c == 0x7F                 ? CharClass::space  // controls too
                                                         : CharClass::separator;
  }
  for (const char c : {'+', '#', '*', '/', '<', '=', '>', '^', '~', '|', '\\', '@'}) {
    classes[static_cast<std::size_t>(c)] = CharClass::op;
  }
  for (const char c : {'%', '&'}) classes[static_cast<std::size_t>(c)] = CharClass::unit;
  for (const char c : {'\'', '"', '`'}) classes[static_cast<std::size_t>(c)] = CharClass::quote;
  classes['$'] = CharClass::currency;
  classes['.'] = CharClass::dot;
  classes[','] = CharClass::comma;
  classes['-'] = CharClass::minus;
  return classes;
}
constexpr bool ends_sentence(std::uint8_t c) {
  return c == '.' || c == ',' || c == ';' || c == ':' || c == '!' || c == '?';
}

constexpr std::array<CharClass, 128> kAsciiClass = ascii_classes();

}  // namespace

// Reads tokens off a folded text: lower-case ASCII bytes, or code points with the table that classifies them.
template <class Unit>
class SafeScanner {
 public:
  SafeScanner(TokenStore* store, const Unit* text, std::size_t size, const FoldTable* table)
      : store_(*store), text_(text), size_(size), table_(table) {}

  // Appends the tokens; returns whether white space ended the first.
  bool run() {
    drop_math_delimiters("$$") || drop_math_delimiters("$");
    token_ = store_.used_;
    out_ = store_.bytes_.data();
    for (std::size_t i = 0; i < size_; i = step(i)) {
    }
    end_token(false);
    store_.used_ = token_;
    return first_spaced_;
  }

  // The text without its spaces, as one token: what is left to compare where there is no word.
  void whole() {
    out_ = store_.bytes_.data();
    token_ = write_ = store_.used_;
    for (std::size_t i = 0; i < whole_size_; ++i) {
      char32_t c = whole_text_[i];
      if (class_of(c) == CharClass::space) continue;
      if (c == '`') c = '\'';
      put(c);
    }
    if (write_ == token_ + 1 && out_[token_] == '-') flags_ = kTokenOperator | kTokenSymbol;  // as where it is a sign
    end_token(false);
    store_.used_ = token_;
  }

 private:
  CharClass class_of(char32_t c) const {
    if (c < 128) return kAsciiClass[c];
    return static_cast<CharClass>(table_->class_bits(c) & kClassMask);
  }
  // Outside of the text there is white space.
  CharClass kind(std::size_t i) const {
    return i < size_ ? class_of(static_cast<char32_t>(text_[i])) : CharClass::space;
  }
  CharClass kind_before(std::size_t i) const { return i > 0 ? kind(i - 1) : CharClass::space; }
  bool digit(std::size_t i) const { return i < size_ && is_ascii_digit(static_cast<char32_t>(text_[i])); }
  bool digit_before(std::size_t i, std::size_t distance) const { return i >= distance && digit(i - distance); }
  bool number_at(std::size_t i) const { return digit(i) || (kind(i) == CharClass::dot && digit(i + 1)); }

  void put(char32_t c) {
    if (c < 128) {
      out_[write_++] = static_cast<std::uint8_t>(c);
      if (is_ascii_digit(c)) flags_ |= kTokenNumeric;
      return;
    }
    if ((table_->class_bits(c) & kClassCjk) != 0) flags_ |= kTokenCjk;
    write_ += encode_utf8(c, out_ + write_);
  }
  void end_token(bool by_space) {
    if (write_ == token_) return;
    if (store_.count_ == first_token_) first_spaced_ = by_space;
    store_.append(token_, write_ - token_, flags_);
    token_ = write_;
    flags_ = 0;
  }
  void symbol(char32_t c, std::uint32_t flags) {
    end_token(false);
    if (c == '&') {
      for (const char letter : {'a', 'n', 'd'}) put(static_cast<char32_t>(letter));
    } else {
      put(c);
      flags_ = flags;
    }
    end_token(false);
  }

  // "$5$" and "$$5$$" are 5; "$5" is five dollars.
  bool drop_math_delimiters(const char* mark) {
    const std::size_t width = std::strlen(mark);
    std::size_t begin = 0, end = size_;
    while (begin < end && kind(begin) == CharClass::space) ++begin;
    while (end > begin && kind(end - 1) == CharClass::space) --end;
    if (end - begin <= 2 * width) return false;
    for (std::size_t i = 0; i < width; ++i) {
      if (text_[begin + i] != '$' || text_[end - 1 - i] != '$') return false;
    }
    begin += width;
    end -= width;
    if (std::find(text_ + begin, text_ + end, static_cast<Unit>('$')) != text_ + end) return false;
    text_ += begin;
    size_ = end - begin;
    return true;
  }

  // Where the number starts whose sign is the minus at i; size_ where that minus is a hyphen or a dash.
  std::size_t signed_number(std::size_t i) const {
    const CharClass before = kind_before(i);
    std::size_t start = i + 1;
    bool is_sign = false;
    if (kind(start) == CharClass::space) {  // "= - 5", or the whole text "- 5"
      std::size_t head = i;
      while (head > 0 && kind(head - 1) == CharClass::space) --head;
      is_sign = head == 0 || kind(head - 1) == CharClass::op;
      while (start < size_ && kind(start) == CharClass::space) ++start;
    } else {
      is_sign = before != CharClass::word && before != CharClass::dot && before != CharClass::unit &&
                !(before == CharClass::currency && digit_before(i, 2));
    }
    if (!is_sign) return size_;
    if (number_at(start)) return start;
    return kind(start) == CharClass::currency && number_at(start + 1) ? start + 1 : size_;
  }

  // The end of a number with separators of thousands that starts at i ("1,000"), or i.
  std::size_t thousands(std::size_t i) const {
    if (text_[i] == '0') return i;
    std::size_t end = i;
    while (end < i + 3 && digit(end)) ++end;
    const std::size_t head = end;
    while (end < size_ && text_[end] == ',' && digit(end + 1) && digit(end + 2) && digit(end + 3)) end += 4;
    const bool goes_on = digit(end) || (end < size_ && text_[end] == ',' && digit(end + 1));
    return end == head || goes_on ? i : end;
  }

  // A run of letters with the digits that go on from them; a number that starts inside is for the caller to look at.
  std::size_t word_run(std::size_t i) {
    do {
      put(static_cast<char32_t>(text_[i]));
      ++i;
    } while (i < size_ && class_of(static_cast<char32_t>(text_[i])) == CharClass::word && (!digit(i) || digit(i - 1)));
    return i;
  }

  std::size_t step(std::size_t i) {
    const char32_t c = static_cast<char32_t>(text_[i]);
    const CharClass here = class_of(c);
    switch (here) {
      case CharClass::word:
        if (is_ascii_digit(c) && !digit_before(i, 1) && kind_before(i) != CharClass::dot &&
            kind_before(i) != CharClass::comma) {
          const std::size_t end = thousands(i);
          for (std::size_t k = i; k < end; ++k) {
            if (text_[k] != ',') put(static_cast<char32_t>(text_[k]));
          }
          if (end > i) return end;
        }
        return word_run(i);
      case CharClass::space:
        end_token(kind_before(i) == CharClass::word);
        return i + 1;
      case CharClass::quote:
        if (digit_before(i, 1) && digit(i + 1)) end_token(false);
        return i + 1;
      case CharClass::dot:
        dot(i);
        return i + 1;
      case CharClass::minus:
      case CharClass::op:
        if ((c == '-' || c == '+') && digit(i + 1) && i > 0 && text_[i - 1] == 'e' && digit_before(i, 2)) {
          if (c == '-') put(c);
          return i + 1;
        }
        if (here == CharClass::minus) return minus(i);
        if (c == '+' && number_at(i + 1) &&
            (kind_before(i) == CharClass::space || kind_before(i) == CharClass::separator)) {
          end_token(false);
        } else {
          symbol(c, kTokenOperator | kTokenSymbol);
        }
        return i + 1;
      case CharClass::currency:
      case CharClass::unit:
        symbol(c, kTokenSymbol);
        return i + 1;
      case CharClass::comma:
      case CharClass::separator:
        break;
    }
    end_token(false);
    return i + 1;
  }

  void dot(std::size_t i) {
    const CharClass before = kind_before(i);
    if (digit_before(i, 1) && digit(i + 1)) {
      put('.');
    } else if (digit(i + 1) && before != CharClass::word && before != CharClass::dot) {
      if (!(write_ == token_ + 1 && out_[token_] == '-')) end_token(false);
      put('0');
      put('.');
    } else if (digit_before(i, 1) || digit(i + 1)) {
      end_token(false);
    }
  }

  bool opens(std::size_t i) const { return i < size_ && (text_[i] == '(' || text_[i] == '[' || text_[i] == '{'); }

  // Whether the minus at i is the sign of a letter, a bracket or a symbol: "-x", "x = -y", "-(x + 1)", "(-\infty, 1)".
  bool negates(std::size_t i) const {
    std::size_t head = i;
    while (head > 0 && kind(head - 1) == CharClass::space) --head;
    const CharClass before = head > 0 ? kind(head - 1) : CharClass::op;
    if (before != CharClass::op && before != CharClass::comma && !(head > 0 && opens(head - 1))) return false;
    if (opens(i + 1)) return true;
    if (kind(i + 1) == CharClass::word) return !digit(i + 1) && kind(i + 2) != CharClass::word;
    return kind(i + 1) == CharClass::op && (text_[i + 1] == '\\' || text_[i + 1] == '|' || text_[i + 1] >= 128);
  }

  // Whether the minus at i belongs to the one or two letters before it: a grade "A-", a blood type "AB-", an ion "Cl-".
  bool marks_a_symbol(std::size_t i) const {
    std::size_t begin = i;
    while (begin > 0 && i - begin < 3 && kind(begin - 1) == CharClass::word) {
      if (digit(begin - 1)) return false;
      --begin;
    }
    if (begin == i || i - begin > 2) return false;
    std::size_t next = i + 1;
    while (next < size_ && kind(next) == CharClass::space) ++next;
    if (next >= size_ || kind(next) == CharClass::comma || kind(next) == CharClass::separator) return true;
    return kind(next) == CharClass::dot && !digit(next + 1);
  }

  std::size_t minus(std::size_t i) {
    const std::size_t start = signed_number(i);
    if (start == size_ && (negates(i) || marks_a_symbol(i))) {
      symbol('-', kTokenOperator | kTokenSymbol);
      return i + 1;
    }
    end_token(false);
    if (start == size_) return i + 1;
    if (kind(start - 1) == CharClass::currency) symbol(static_cast<char32_t>(text_[start - 1]), kTokenSymbol);
    put('-');
    return start;
  }

  TokenStore& store_;
  const Unit* text_;
  std::size_t size_;
  const Unit* const whole_text_ = text_;
  const std::size_t whole_size_ = size_;
  const FoldTable* table_;
  std::uint8_t* out_ = nullptr;
  const std::size_t first_token_ = store_.count_;
  std::size_t token_ = store_.used_;
  std::size_t write_ = store_.used_;
  std::uint32_t flags_ = 0;
  bool first_spaced_ = false;
};

void TokenStore::safe_ascii(const std::uint8_t* text, std::size_t size) {
  const std::size_t origin = used_, first = count_;
  const std::size_t rounded = (size + 63) / 64 * 64;
  // The text in lower case, and after it the tokens of a text that is more than words: "&" becomes three bytes.
  bytes_.reserve(used_ + rounded + 3 * size + 2 * kPadding, used_);
  used_ += rounded;
  bool words = true, first_spaced = false;
  for_each_piece(text, size, bytes_.data() + origin, [&](std::size_t begin, std::size_t end, bool plain) {
    if (!words) return;
    std::size_t stop = end;
    if (!plain) {  // a word before the end of a sentence is plain too
      const std::uint8_t* const piece = bytes_.data() + origin;
      while (stop > begin && ends_sentence(piece[stop - 1])) --stop;
      words = stop > begin && std::all_of(piece + begin, piece + stop, is_ascii_word);
      if (!words) return;
    }
    if (count_ == first) first_spaced = plain && end < size;
    append(origin + begin, stop - begin, 0);
  });
  if (!words) {
    count_ = first;
    SafeScanner<std::uint8_t> scanner(this, bytes_.data() + origin, size, nullptr);
    first_spaced = scanner.run();
    if (count_ == first) {
      scanner.whole();
      return;
    }
  }
  finish_safe(first, first_spaced);
}

template <class Unit>
void TokenStore::safe_wide(const Unit* text, std::size_t size, const FoldTable& table) {
  const std::size_t first = count_;
  const std::size_t folded = fold_text(text, size, table);
  bytes_.reserve(used_ + 4 * folded + 2 * kPadding, used_);
  SafeScanner<char32_t> scanner(this, folded_.data(), folded, &table);
  const bool first_spaced = scanner.run();
  if (count_ == first) {
    scanner.whole();
    return;
  }
  finish_safe(first, first_spaced);
}

template <class Unit>
std::size_t TokenStore::fold_text(const Unit* text, std::size_t size, const FoldTable& table) {
  folded_.reserve(size + 64, 0);
  std::size_t write = 0;
  FoldKind previous = FoldKind::plain;
  for (std::size_t i = 0; i < size; ++i) {
    const char32_t c = static_cast<char32_t>(text[i]);
    const std::size_t index = table_index(c);
    const std::uint32_t entry = index < kTabledCodePoints ? table.entries[index] : c | 1u << 23;
    const std::size_t length = entry >> 23;
    if (length == 0) continue;
    const FoldKind kind = static_cast<FoldKind>(entry >> 21 & 3);
    const char32_t one = entry & 0x1FFFFF;
    const char32_t* const piece = length == 1 ? &one : table.pool.data() + one;
    folded_.reserve(write + length + 1, write);
    const bool attached = previous == FoldKind::subscript || previous == FoldKind::fraction;
    if (kind == FoldKind::superscript) {
      if (previous != FoldKind::superscript) folded_[write++] = '^';
    } else if ((kind != FoldKind::plain || attached) &&
               !(kind == FoldKind::subscript && previous == FoldKind::subscript)) {
      if (write > 0 && is_ascii_digit(folded_[write - 1]) && is_ascii_digit(piece[0])) folded_[write++] = ' ';
    }
    for (std::size_t k = 0; k < length; ++k) folded_[write++] = piece[k];
    previous = kind;
  }
  return order_marks(write, table);
}

// Canonical order of combining marks; then a dot above an i, which has one anyway, goes.
std::size_t TokenStore::order_marks(std::size_t size, const FoldTable& table) {
  char32_t* const text = folded_.data();
  bool dotted = false;
  for (std::size_t i = 0; i < size;) {
    if (text[i] < 0x300 || table.combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    bool ordered = true;
    for (std::uint8_t last = 0; end < size; ++end) {
      const std::uint8_t combining = table.combining_class(text[end]);
      if (combining == 0) break;
      ordered = ordered && last <= combining;
      dotted = dotted || text[end] == 0x307;
      last = combining;
    }
    if (!ordered) {  // counting sort: a text may be a million marks
      std::size_t starts[257] = {};
      for (std::size_t k = i; k < end; ++k) ++starts[table.combining_class(text[k]) + 1];
      for (std::size_t k = 1; k < 257; ++k) starts[k] += starts[k - 1];
      marks_.reserve(end - i, 0);
      for (std::size_t k = i; k < end; ++k) marks_[starts[table.combining_class(text[k])]++] = text[k];
      std::memcpy(text + i, marks_.data(), (end - i) * sizeof(char32_t));
    }
    i = end;
  }
  if (!dotted) return size;
  std::size_t write = 0;
  for (std::size_t read = 0; read < size; ++read) {
    if (text[read] == 0x307 && write > 0 && text[write - 1] == 'i') continue;
    text[write++] = text[read];
  }
  return write;
}

void TokenStore::finish_safe(std::size_t first, bool first_spaced) {
  remove_articles(first, first_spaced);
  write_plain_number(first);
}

void TokenStore::remove_articles(std::size_t first, bool first_spaced) {
  const std::size_t count = count_ - first;
  std::uint64_t* const keys = keys_.data() + first;
  Token* const tokens = tokens_.data() + first;
  std::size_t named = 0, following = 0;  // tokens that stay, and the second of them
  for (std::size_t t = 0; t < count; ++t) {
    if (keys[t] == kThe) continue;
    if (++named == 2) following = t;
  }
  if (named == 0) return;
  bool leading = first_spaced && (keys[0] == kA || keys[0] == kAn) && named > 1;
  if (leading) {
    const std::uint8_t* const word = bytes_.data() + tokens[following].begin;
    std::size_t letter = 0;
    decode_utf8(word, &letter);
    leading = tokens[following].size > letter && keys[following] != kAnd && keys[following] != kOr &&
              !is_ascii_digit(word[0]) && word[0] != '-';
  }
  if (named == count && !leading) return;
  std::size_t write = 0;
  for (std::size_t t = leading ? 1 : 0; t < count; ++t) {
    if (keys[t] == kThe) continue;
    keys[write] = keys[t];
    tokens[write++] = tokens[t];
  }
  count_ = first + write;
}

// A number that is the whole answer (its unit's sign apart) has one way to be written: 5.0 is 5, -0 is 0.
void TokenStore::write_plain_number(std::size_t first) {
  std::size_t words = 0, at = 0;
  for (std::size_t t = first; t < count_ && words < 2; ++t) {
    if ((tokens_[t].flags & kTokenSymbol) != 0) continue;
    ++words;
    at = t;
  }
  if (words != 1) return;
  Token& token = tokens_[at];
  std::uint8_t* const text = bytes_.data() + token.begin;
  const auto digits = [&](std::size_t i) {
    while (i < token.size && is_ascii_digit(text[i])) ++i;
    return i;
  };
  // -?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?
  const std::size_t sign = text[0] == '-' ? 1 : 0;
  const std::size_t whole = digits(sign);
  if (whole == sign) return;
  std::size_t mantissa = whole;
  if (mantissa < token.size && text[mantissa] == '.') {
    mantissa = digits(whole + 1);
    if (mantissa == whole + 1) return;
  }
  if (mantissa < token.size) {
    if (text[mantissa] != 'e') return;
    const std::size_t exponent = mantissa + (mantissa + 1 < token.size && text[mantissa + 1] == '-' ? 2 : 1);
    if (exponent == token.size || digits(exponent) != token.size) return;
  }
  std::size_t kept = mantissa;
  if (mantissa > whole) {
    while (text[kept - 1] == '0') --kept;
    if (text[kept - 1] == '.') --kept;
  }
  std::size_t skipped = 0;
  if (kept == 2 && text[0] == '-' && text[1] == '0') skipped = 1;
  if (kept == mantissa && skipped == 0) return;
  std::memmove(text + kept, text + mantissa, token.size - mantissa);
  token.begin += skipped;
  token.size = token.size - (mantissa - kept) - skipped;
  keys_[at] = token_key(bytes_.data() + token.begin, token.size);
}

template void TokenStore::safe_wide(const std::uint8_t*, std::size_t, const FoldTable&);
template void TokenStore::safe_wide(const std::uint16_t*, std::size_t, const FoldTable&);
template void TokenStore::safe_wide(const std::uint32_t*, std::size_t, const FoldTable&);

}  // namespace rewardkit
