#include "core/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/calibration_block.hpp"
#include "core/cpu_features.hpp"

namespace rewardkit {
namespace calibration {
namespace {

constexpr int kCopies = 8;  // neighbours go to different copies, so that no addition waits for the one before
constexpr int kPerCopy = kBlock / kCopies;
constexpr int kCountShift = 8;  // kPerCopy terms, each at most 2^F, sum to less than 2^(F + kCountShift)
static_assert(kPerCopy < (1 << kCountShift) && kMaxFractionBits + 2 * kCountShift <= 64);

template <class T>
void add_one(T q, bool correct, const Plan<T>& plan, std::int64_t* histogram, std::int64_t* squared_error,
             std::int64_t* invalid) {
  if (!valid_confidence(q)) {
    ++*invalid;
    return;
  }
  std::int64_t* cell = histogram + 3 * bin_of(q, plan.thresholds, plan.bins - 1);
  const double value = static_cast<double>(q);
  cell[0] += 1;
  cell[1] += correct;
  cell[2] += fixed_point(value, plan.magic);
  *squared_error += fixed_point_square(value - correct, plan.magic);
}

// Whether (float)q >= (float)t says the same as q >= t for every double q.
bool rounds_like_single(double t) {
  const float single = static_cast<float>(t);
  const double below = std::nextafter(t, -std::numeric_limits<double>::infinity());
  return static_cast<float>(below) < single;
}
bool rounds_like_single(float) {
  return true;
}

// The largest float32 below a threshold, that is, the largest value in the bin before it.
float float_before(float t) {
  return std::nextafter(t, -std::numeric_limits<float>::infinity());
}

template <class T>
Plan<T> make_plan(const CalibrationInput<T>& input) {
  Plan<T> plan{};
  plan.thresholds = input.thresholds;
  plan.bins = input.bins;
  plan.magic = fixed_point_magic(input.fraction_bits);
  plan.magic_bits = bits_of(plan.magic);
  plan.one = std::int64_t{1} << input.fraction_bits;
  plan.unit = std::int64_t{1} << (input.fraction_bits + kCountShift);
  plan.single.fill(std::numeric_limits<float>::infinity());
  if (input.bins > kMaxSimdBins) return plan;
  const int count = input.bins - 1;
  plan.by_single = std::all_of(input.thresholds, input.thresholds + count, [](T t) { return rounds_like_single(t); });
  if (!plan.by_single) return plan;
  for (int i = 0; i < count; ++i) plan.single[static_cast<std::size_t>(i)] = static_cast<float>(input.thresholds[i]);
  if (input.bins > kTable) return plan;
  // A scale a little below the number of bins makes the guess never too high; whether it is never more than one too
  // low either is checked at both ends of every bin, which proves it in between, since the guess is monotone.
  plan.scale = static_cast<float>(input.bins) * (1.0f - 0x1p-20f);
  const auto guess = [&](float q) { return static_cast<int>(q * plan.scale); };
  bool good = guess(1.0f) <= count && guess(1.0f) >= count - 1;
  for (int bin = 1; bin <= count; ++bin) {
    const float start = plan.single[static_cast<std::size_t>(bin - 1)];
    good = good && start > 0.0f && start <= 1.0f && guess(start) >= bin - 1 && guess(float_before(start)) <= bin - 1;
  }
  plan.by_guess = good;
  return plan;
}

template <class T>
FillBlock<T> choose_fill_block() {
#if defined(__x86_64__)
  switch (best_instruction_set()) {
    case InstructionSet::avx512_bf16:
    case InstructionSet::avx512:
      return &fill_block_avx512<T>;
    case InstructionSet::avx2:
      return &fill_block_avx2<T>;
    case InstructionSet::portable:
      break;
  }
#endif
  return &fill_block_portable<T>;
}

// One group. A cell of a copy holds the sum of at most kPerCopy terms in its low bits and their number above.
template <class T>
void one_group(const CalibrationInput<T>& input, const Plan<T>& plan, std::int64_t* histogram,
               std::int64_t* squared_error, std::int64_t* invalid) {
  const FillBlock<T> fill = choose_fill_block<T>();
  const int cells = 2 * input.bins;
  const int shift = input.fraction_bits + kCountShift;
  const std::uint64_t unit = std::uint64_t{1} << shift;
  alignas(64) std::uint64_t copies[kCopies][2 * kMaxSimdBins] = {};
  std::int64_t number[2 * kMaxSimdBins] = {}, sum[2 * kMaxSimdBins] = {};
  Block block;
  std::int64_t i = 0;
  while (i < input.size) {
    const int size = static_cast<int>(std::min<std::int64_t>(kBlock, input.size - i)) / kStep * kStep;
    if (size == 0 || !fill(input.confidence + i, input.correct + i, size, plan, Mode::histogram, block)) {
      const std::int64_t end = std::min<std::int64_t>(input.size, i + std::max(size, kStep));
      for (; i < end; ++i) {
        add_one(input.confidence[i], input.correct[i] != 0, plan, histogram, squared_error, invalid);
      }
      continue;
    }
    for (int j = 0; j < size; j += kCopies) {
      for (int copy = 0; copy < kCopies; ++copy) {
        const auto at = static_cast<std::size_t>(j + copy);
        copies[copy][block.index[at]] += static_cast<std::uint64_t>(block.term[at]);
      }
    }
    *squared_error += block.square_sum;
    for (int cell = 0; cell < cells; ++cell) {
      std::uint64_t low = 0, high = 0;
      for (int copy = 0; copy < kCopies; ++copy) {
        low += copies[copy][cell] & (unit - 1);
        high += copies[copy][cell] >> shift;
        copies[copy][cell] = 0;
      }
      sum[cell] += static_cast<std::int64_t>(low);
      number[cell] += static_cast<std::int64_t>(high);
    }
    i += size;
  }
  for (int bin = 0; bin < input.bins; ++bin) {
    histogram[3 * bin] += number[2 * bin] + number[2 * bin + 1];
    histogram[3 * bin + 1] += number[2 * bin + 1];
    histogram[3 * bin + 2] += sum[2 * bin] + sum[2 * bin + 1];
  }
}

}  // namespace

template <class T>
bool fill_block_portable(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                         Block& block) {
  bool valid = true;
  for (int i = 0; i < size; ++i) valid &= valid_confidence(confidence[i]);
  if (!valid) return false;
  std::int64_t squares = 0;
  for (int i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const T q = confidence[i];
    const std::uint32_t right = correct[i] != 0;
    std::uint32_t bin = 0;
    for (int k = 0; k < plan.bins - 1; ++k) bin += q >= plan.thresholds[k];
    const std::int64_t term = fixed_point(static_cast<double>(q), plan.magic);
    const std::int64_t square = fixed_point_square(static_cast<double>(q) - right, plan.magic);
    block.index[at] = mode == Mode::histogram ? 2 * bin + right : bin;
    block.term[at] = mode == Mode::histogram ? term + plan.unit : term - right * plan.one;
    block.square[at] = square;
    squares += square;
  }
  block.square_sum = squares;
  return true;
}

}  // namespace calibration

template <class T>
bool calibration_histogram(const CalibrationInput<T>& input, const std::int64_t* groups, std::int64_t n_groups,
                           std::int64_t* histogram, std::int64_t* squared_error, std::int64_t* invalid) {
  const calibration::Plan<T> plan = calibration::make_plan(input);
  if (groups == nullptr) {
    if (input.bins <= calibration::kMaxSimdBins) {
      calibration::one_group(input, plan, histogram, squared_error, invalid);
    } else {
      for (std::int64_t i = 0; i < input.size; ++i) {
        calibration::add_one(input.confidence[i], input.correct[i] != 0, plan, histogram, squared_error, invalid);
      }
    }
    return true;
  }
  for (std::int64_t i = 0; i < input.size; ++i) {
    const std::int64_t group = groups[i];
    if (group < 0 || group >= n_groups) return false;
    calibration::add_one(input.confidence[i], input.correct[i] != 0, plan, histogram + group * input.bins * 3,
                         squared_error + group, invalid + group);
  }
  return true;
}

template <class T>
void segmented_calibration(const CalibrationInput<T>& input, const std::int64_t* offsets, std::int64_t segments,
                           double* ece, double* brier, std::int64_t* count, std::int64_t* invalid) {
  using namespace calibration;
  const Plan<T> plan = make_plan(input);
  const FillBlock<T> fill = choose_fill_block<T>();
  const bool simd = input.bins <= kMaxSimdBins;
  const double scale = std::ldexp(1.0, -input.fraction_bits);
  std::vector<std::int64_t> gap(static_cast<std::size_t>(input.bins), 0);
  Block block;
  std::int64_t segment = 0, squares = 0;
  count[0] = 0;  // there is at least one segment
  invalid[0] = 0;
  // Closes every segment that ends at or before a position.
  const auto close_until = [&](std::int64_t position) {
    while (segment < segments && offsets[segment + 1] <= position) {
      std::int64_t total = 0;
      for (std::int64_t& sum : gap) {
        total += std::abs(sum);
        sum = 0;
      }
      const double n = static_cast<double>(count[segment]);
      const double none = std::numeric_limits<double>::quiet_NaN();
      ece[segment] = count[segment] > 0 ? static_cast<double>(total) * scale / n : none;
      brier[segment] = count[segment] > 0 ? static_cast<double>(squares) * scale / n : none;
      squares = 0;
      if (++segment < segments) count[segment] = invalid[segment] = 0;
    }
  };
  close_until(0);
  std::int64_t i = 0;
  while (i < input.size) {
    const int size = static_cast<int>(std::min<std::int64_t>(kBlock, input.size - i)) / kStep * kStep;
    const bool filled =
        simd && size > 0 && fill(input.confidence + i, input.correct + i, size, plan, Mode::segmented, block);
    const std::int64_t end = std::min<std::int64_t>(input.size, i + std::max(size, kStep));
    const std::int64_t start = i;
    while (i < end) {
      const std::int64_t stop = std::min(end, offsets[segment + 1]);
      if (filled) {
        for (std::int64_t j = i - start; j < stop - start; ++j) {
          const auto at = static_cast<std::size_t>(j);
          gap[block.index[at]] += block.term[at];
          squares += block.square[at];
        }
        count[segment] += stop - i;
      } else {
        for (std::int64_t j = i; j < stop; ++j) {
          const T q = input.confidence[j];
          if (!valid_confidence(q)) {
            ++invalid[segment];
            continue;
          }
          const bool right = input.correct[j] != 0;
          const double value = static_cast<double>(q);
          gap[static_cast<std::size_t>(bin_of(q, plan.thresholds, plan.bins - 1))] +=
              fixed_point(value, plan.magic) - (right ? plan.one : 0);
          squares += fixed_point_square(value - right, plan.magic);
          ++count[segment];
        }
      }
      i = stop;
      close_until(i);
    }
  }
}

#define REWARDKIT_INSTANTIATE(T)                                                                                       \
  template bool calibration_histogram<T>(const CalibrationInput<T>&, const std::int64_t*, std::int64_t, std::int64_t*, \
                                         std::int64_t*, std::int64_t*);                                                \
  template void segmented_calibration<T>(const CalibrationInput<T>&, const std::int64_t*, std::int64_t, double*,       \
                                         double*, std::int64_t*, std::int64_t*);                                       \
  template bool calibration::fill_block_portable<T>(const T*, const std::uint8_t*, int, const Plan<T>&, Mode, Block&);
REWARDKIT_INSTANTIATE(float)
REWARDKIT_INSTANTIATE(double)
#undef REWARDKIT_INSTANTIATE

}  // namespace rewardkit
