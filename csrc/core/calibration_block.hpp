// Inside the calibration kernels: the part that has one implementation per instruction set. It turns a block of
// confidences into bin numbers and fixed-point terms, which portable code then adds up.
#pragma once

#include <array>
#include <cstdint>

#include "core/bins.hpp"

namespace rewardkit::calibration {

inline constexpr int kBlock = 1024;
inline constexpr int kStep = 16;         // SIMD implementations take multiples of this
inline constexpr int kMaxSimdBins = 64;  // with more, the per-block sums cost more than they save
inline constexpr int kTable = 16;

// How to find bins, prepared once per call.
template <class T>
struct Plan {
  const T* thresholds;
  int bins;
  double magic;
  std::int64_t magic_bits;
  std::int64_t one;   // 2^fraction_bits
  std::int64_t unit;  // what counts one in the upper bits of a histogram cell
  // Comparing with `single` after rounding to float32 gives the same bins as comparing with `thresholds`.
  bool by_single;
  std::array<float, kMaxSimdBins> single;
  // The bin is floor(q * scale) or one more, and which one `single` tells; holds for up to kTable bins of equal width.
  bool by_guess;
  float scale;
};

enum class Mode {
  // index = 2 * bin + correct; term = fixed(q) + plan.unit; squares are summed into *square_sum.
  histogram,
  // index = bin; term = fixed(q) - correct * one; squares go to square[i].
  segmented,
};

struct Block {
  alignas(64) std::array<std::uint32_t, kBlock> index;
  alignas(64) std::array<std::int64_t, kBlock> term;
  alignas(64) std::array<std::int64_t, kBlock> square;
  std::int64_t square_sum;
};

// Fills a block from size (a multiple of kStep) confidences; false, with the block undefined, when one is invalid.
template <class T>
using FillBlock = bool (*)(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                           Block& block);

template <class T>
bool fill_block_portable(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                         Block& block);
#if defined(__x86_64__)
template <class T>
bool fill_block_avx2(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                     Block& block);
template <class T>
bool fill_block_avx512(const T* confidence, const std::uint8_t* correct, int size, const Plan<T>& plan, Mode mode,
                       Block& block);
#endif

}  // namespace rewardkit::calibration
