#include "core/auroc.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace rewardkit {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;

// Unsigned integers in the order of the floating-point numbers; -0 and 0 are one number.
std::uint32_t to_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return bits ^ (static_cast<std::uint32_t>(-static_cast<std::int32_t>(bits >> 31)) | 0x80000000u);
}
std::uint64_t to_key(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);
  return bits ^ (static_cast<std::uint64_t>(-static_cast<std::int64_t>(bits >> 63)) | 0x8000000000000000u);
}

// Least significant digit first; digits that are the same in all keys are skipped. Returns where the result lies.
template <class Key>
Key* radix_sort(Key* keys, Key* spare, std::int64_t size) {
  constexpr int kPasses = (static_cast<int>(sizeof(Key)) * 8 + kDigitBits - 1) / kDigitBits;
  if (size < 512) {
    std::sort(keys, keys + size);
    return keys;
  }
  auto counts = std::make_unique<std::array<std::array<std::int64_t, kDigits>, kPasses>>();
  for (std::int64_t i = 0; i < size; ++i) {
    for (int pass = 0; pass < kPasses; ++pass) {
      ++(*counts)[static_cast<std::size_t>(pass)][(keys[i] >> (pass * kDigitBits)) & (kDigits - 1)];
    }
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    auto& count = (*counts)[static_cast<std::size_t>(pass)];
    const int shift = pass * kDigitBits;
    if (count[(keys[0] >> shift) & (kDigits - 1)] == size) continue;
    std::int64_t start = 0;
    for (std::int64_t& entry : count) start += std::exchange(entry, start);
    for (std::int64_t i = 0; i < size; ++i) spare[count[(keys[i] >> shift) & (kDigits - 1)]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

template <class Key>
std::int64_t count_wins(const Key* right, std::int64_t n_right, const Key* wrong, std::int64_t n_wrong) {
  std::int64_t twice = 0, below = 0, not_above = 0;
  for (std::int64_t i = 0; i < n_right; ++i) {
    while (below < n_wrong && wrong[below] < right[i]) ++below;
    not_above = std::max(not_above, below);
    while (not_above < n_wrong && wrong[not_above] <= right[i]) ++not_above;
    twice += below + not_above;
  }
  return twice;
}

// Right items are written from the front, wrong ones from the back: no branch, and each kind is sorted alone.
template <class Key, class T>
AurocCounts counts_of(const T* score, const std::uint8_t* correct, std::int64_t size) {
  const std::unique_ptr<Key[]> keys(new Key[static_cast<std::size_t>(2 * size + 2)]);
  std::int64_t front = 0, back = size;
  for (std::int64_t i = 0; i < size; ++i) {
    Key key;
    if constexpr (sizeof(Key) == 4) {
      key = to_key(static_cast<float>(score[i]));
    } else {
      key = to_key(score[i]);
    }
    const bool right = correct[i] != 0;
    keys[static_cast<std::size_t>(right ? front : back)] = key;
    front += right;
    back -= !right;
  }
  // keys[front] is where a next right one would go; the wrong ones are keys[back + 1 … size].
  Key* spare = keys.get() + size + 1;
  const std::int64_t wrong = size - front;
  const Key* sorted_right = radix_sort(keys.get(), spare, front);
  const Key* sorted_wrong = radix_sort(keys.get() + back + 1, spare + front, wrong);
  return {count_wins(sorted_right, front, sorted_wrong, wrong), front, wrong};
}

}  // namespace

template <class T>
AurocCounts auroc_counts(const T* score, const std::uint8_t* correct, std::int64_t size) {
  if constexpr (std::is_same_v<T, float>) {
    return counts_of<std::uint32_t>(score, correct, size);
  } else {
    // Scores that came from float32 sort in half the passes.
    bool single = true;
    for (std::int64_t i = 0; i < size && single; ++i)
      single = static_cast<double>(static_cast<float>(score[i])) == score[i];
    return single ? counts_of<std::uint32_t>(score, correct, size) : counts_of<std::uint64_t>(score, correct, size);
  }
}

template AurocCounts auroc_counts<float>(const float*, const std::uint8_t*, std::int64_t);
template AurocCounts auroc_counts<double>(const double*, const std::uint8_t*, std::int64_t);

}  // namespace rewardkit
