#include "core/auroc.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

namespace rewardkit {
namespace {

// A key holds a score's place in the order above its lowest bit, and in the lowest bit whether the item is right: what
// is sorted is then read once from front to back, without a search.
using Key = std::uint64_t;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Fresh memory costs a page fault per 4 KB, which for sorting would be a fifth of the time; large pages cost few.
template <class Key>
std::unique_ptr<Key[], Free> allocate(std::int64_t count) {
  constexpr std::size_t kLargePage = std::size_t{2} << 20;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Key);
  const std::size_t alignment = bytes >= kLargePage ? kLargePage : alignof(std::max_align_t);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__)
  if (alignment == kLargePage) madvise(memory, bytes, MADV_HUGEPAGE);  // only advice: failing changes nothing
#endif
  return std::unique_ptr<Key[], Free>(static_cast<Key*>(memory));
}

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPasses = 3;
constexpr std::int64_t kSmall = 512;  // below, comparing is faster than counting

// Sorts by kPasses digits from a bit on, least significant digit first; digits that are the same in all keys are
// skipped. Returns where the result lies, keys or spare.
template <class Key>
Key* sort_by_digits(Key* keys, Key* spare, std::int64_t size, int low_bit) {
  std::array<std::array<std::int64_t, kDigits>, kPasses> counts{};
  for (std::int64_t i = 0; i < size; ++i) {
    for (int pass = 0; pass < kPasses; ++pass) {
      ++counts[static_cast<std::size_t>(pass)][(keys[i] >> (low_bit + pass * kDigitBits)) & (kDigits - 1)];
    }
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    auto& count = counts[static_cast<std::size_t>(pass)];
    const int shift = low_bit + pass * kDigitBits;
    if (count[(keys[0] >> shift) & (kDigits - 1)] == size) continue;
    std::int64_t start = 0;
    for (std::int64_t& entry : count) start += std::exchange(entry, start);
    for (std::int64_t i = 0; i < size; ++i) spare[count[(keys[i] >> shift) & (kDigits - 1)]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

// Three passes over the bits from low_bit on (all of a 32-bit key, the leading 33 of a 64-bit key), after which mostly
// runs of a few keys are left to be ordered by the bits below; long runs take three more passes. Returns where the
// result lies.
template <class Key>
Key* radix_sort(Key* keys, Key* spare, std::int64_t size, int low_bit) {
  if (size < kSmall) {
    std::sort(keys, keys + size);
    return keys;
  }
  Key* sorted = sort_by_digits(keys, spare, size, low_bit);
  if (low_bit == 0) return sorted;
  Key* other = sorted == keys ? spare : keys;
  for (std::int64_t start = 0; start < size;) {
    std::int64_t end = start + 1;
    bool ordered = true;
    while (end < size && (sorted[end] >> low_bit) == (sorted[start] >> low_bit)) {
      ordered = ordered && (sorted[end - 1] >> 1) <= (sorted[end] >> 1);  // labels need no order
      ++end;
    }
    if (!ordered && end - start < kSmall) {
      std::sort(sorted + start, sorted + end);
    } else if (!ordered) {
      const Key* run = sort_by_digits(sorted + start, other + start, end - start, 0);
      if (run != sorted + start) std::copy(run, run + (end - start), sorted + start);
    }
    start = end;
  }
  return sorted;
}

// Reads sorted keys once; adds to the counts so far, whose wrong items all score lower.
template <class Key>
void count_wins(const Key* keys, std::int64_t size, AurocCounts& counts) {
  std::int64_t right = 0, wrong = 0;  // of the run of equal scores
  const auto close = [&] {
    counts.twice_wins += right * (2 * counts.wrong + wrong);
    counts.right += right;
    counts.wrong += wrong;
  };
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0 && (keys[i] ^ keys[i - 1]) > 1) {
      close();
      right = wrong = 0;
    }
    right += static_cast<std::int64_t>(keys[i] & 1);
    wrong += static_cast<std::int64_t>(~keys[i] & 1);
  }
  close();
}

// There is no room for the label beside a sign, so negative numbers, which all come first, are sorted apart.
template <class Key, class Score, class T>
AurocCounts counts_of(const T* score, const std::uint8_t* correct, std::int64_t size) {
  constexpr int kBits = static_cast<int>(sizeof(Key)) * 8;
  constexpr int kLowBit = std::max(0, kBits - kPasses * kDigitBits);
  const auto keys = allocate<Key>(2 * size + 1);
  std::int64_t front = 0, back = size;
  for (std::int64_t i = 0; i < size; ++i) {
    const Key bits = std::bit_cast<Key>(static_cast<Score>(score[i]) + Score(0));  // -0 and 0 are one number
    const bool negative = (bits >> (kBits - 1)) != 0;
    // The sign is shifted out; larger magnitudes are smaller negative numbers.
    const Key order = static_cast<Key>((negative ? ~bits : bits) << 1);
    keys[static_cast<std::size_t>(negative ? front : back)] = order | static_cast<Key>(correct[i] != 0);
    front += negative;
    back -= !negative;
  }
  // The negative keys are keys[0 … front - 1], the others keys[back + 1 … size].
  Key* spare = keys.get() + size + 1;
  AurocCounts counts{};
  count_wins(radix_sort(keys.get(), spare, front, kLowBit), front, counts);
  count_wins(radix_sort(keys.get() + back + 1, spare, size - front, kLowBit), size - front, counts);
  return counts;
}

}  // namespace

template <>
AurocCounts auroc_counts<float>(const float* score, const std::uint8_t* correct, std::int64_t size) {
  return counts_of<std::uint32_t, float>(score, correct, size);
}

template <>
AurocCounts auroc_counts<double>(const double* score, const std::uint8_t* correct, std::int64_t size) {
  // Scores that came from float32 sort in half the passes. (Rounding keeps the order, so equality is all there is to
  // ask.)
  bool single = true;
  for (std::int64_t i = 0; i < size && single; ++i) {
    single = static_cast<double>(static_cast<float>(score[i])) == score[i];
  }
  return single ? counts_of<std::uint32_t, float>(score, correct, size)
                : counts_of<std::uint64_t, double>(score, correct, size);
}

}  // namespace rewardkit
