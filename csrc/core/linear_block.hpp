// The inner loops of linear_token_logprobs, written once over a `Simd` policy (see logprob_row.hpp for what one has and
// why everything here is a template); included by one source file per instruction set.
//
// One block of logits is kColumns tokens of the vocabulary times kRows rows of hidden states. Its lanes are rows: each
// number of the weights meets a whole vector of rows, so that neither the product nor the softmax that follows ever
// adds up the lanes of a vector. Batches of a few rows, which would leave the lanes empty, go another way (`dots`).
//
// The products run over `units`, 4 bytes of the hidden size each: a float, or a pair of bfloat16 for processors that
// multiply and add those in one instruction. Packed, a panel of hidden states is [units][kRows], and a panel of weights
// [units / kRun][kColumns][kRun]: one stream through the memory for each, and no transposing of the weights.
//
// Beside what logprob_row.hpp asks for, Simd has:  linear_columns; load_one, store_one (one vector of floats);
//   multiply_add(V hidden, V weight, V sum) of units;  any_above(V, V) -> bool, NaN above nothing;
//   add_to(double*, V): adds width floats to as many doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/linear_kernels.hpp"
#include "core/softmax.hpp"

// Loops over sums must be unrolled whole, or the compiler keeps the sums in memory.
#if defined(__clang__)
#define RK_UNROLL _Pragma("unroll")
#else
#define RK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace rewardkit::detail {

struct BFloat16Pair {
  BFloat16 first, second;
};

template <class Simd>
struct LinearBlock {
  using V = typename Simd::V;
  static constexpr int kWidth = Simd::width;
  static constexpr int kRows = 2 * kWidth;
  static constexpr int kRun = 2 * kWidth;
  static constexpr int kColumns = Simd::linear_columns;

  // out[column][row] of a block; added to what is there unless `first`. Vectors is 2, or 1 where the second half of
  // the panel has no row.
  template <int Vectors>
  static void product_of(const float* hidden, const float* weight, std::int64_t first_run, std::int64_t last_run,
                         bool first, const Ahead& ahead, float* out) {
    V sum[kColumns][Vectors];
    RK_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      RK_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[j][v] = Simd::set(0.0F);
    }
    for (std::int64_t run = first_run; run < last_run; ++run) {
      const std::int64_t from = run * ahead.bytes_per_run, end = from + ahead.bytes_per_run;
      for (std::int64_t row = 0; row < ahead.rows; ++row) {
        const char* bytes = ahead.data + row * ahead.stride;
        for (std::int64_t b = from; b < end && b < ahead.bytes; b += 64) __builtin_prefetch(bytes + b, 0, 3);
      }
      for (int unit = 0; unit < kRun; ++unit) {
        V rows[Vectors];
        RK_UNROLL
        for (int v = 0; v < Vectors; ++v) rows[v] = Simd::load_one(hidden + v * kWidth);
        RK_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          const V one = Simd::set(weight[j * kRun + unit]);
          RK_UNROLL
          for (int v = 0; v < Vectors; ++v) sum[j][v] = Simd::multiply_add(rows[v], one, sum[j][v]);
        }
        hidden += kRows;
      }
      weight += kColumns * kRun;
    }
    RK_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      RK_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        float* to = out + j * kRows + v * kWidth;
        Simd::store_one(to, first ? sum[j][v] : Simd::add(Simd::load_one(to), sum[j][v]));
      }
    }
  }

  static void product(const float* hidden, const float* weight, std::int64_t runs, bool narrow, bool first,
                      const Ahead& ahead, float* out) {
    const auto multiply = narrow ? &product_of<1> : &product_of<2>;
    std::int64_t run = 0;
    do {  // once even without any units: then a product is 0
      const std::int64_t last = run + kStretch < runs ? run + kStretch : runs;
      multiply(hidden + run * kRun * kRows, weight + run * kRun * kColumns, run, last, first && run == 0, ahead, out);
      run = last;
    } while (run < runs);
  }

  // A sum over 256 units, then added to the others: in one go from end to end, rounding errors would be twice as large.
  static constexpr std::int64_t kStretch = 256 / kRun;

  // Rows [0, columns) of `weight`, `count` elements of each, as panels; zeros fill up the last run and the last panel.
  // T is what a unit is made of: one element, or a pair.
  template <class T, class Element>
  static void pack_units(const Element* weight, std::int64_t stride, std::int64_t columns, std::int64_t count,
                         float* out) {
    constexpr std::int64_t kElements = kRun * static_cast<std::int64_t>(sizeof(T) / sizeof(Element));
    for (std::int64_t first = 0; first < columns; first += kColumns) {
      const std::int64_t here = columns - first < kColumns ? columns - first : kColumns;
      for (std::int64_t start = 0; start < count; start += kElements) {
        const Element* line = weight + first * stride + start;
        const std::int64_t left = count - start;
        for (std::int64_t j = 0; j < kColumns; ++j, line += stride, out += kRun) {
          V a = Simd::set(0.0F), b = a;
          if (j < here && left >= kElements) {
            Simd::load_in_order(reinterpret_cast<const T*>(line), a, b);
          } else if (j < here) {
            T rest[kRun] = {};
            std::memcpy(rest, line, static_cast<std::size_t>(left) * sizeof(Element));
            Simd::load_in_order(rest, a, b);
          }
          Simd::store_in_order(out, a, b);
        }
      }
    }
  }

  template <class T>
  static void pack(const void* weight, std::int64_t stride, std::int64_t columns, std::int64_t count, float* out) {
    pack_units<T>(static_cast<const T*>(weight), stride, columns, count, out);
  }

  static void pack_pairs(const void* weight, std::int64_t stride, std::int64_t columns, std::int64_t count,
                         float* out) {
    pack_units<BFloat16Pair>(static_cast<const BFloat16*>(weight), stride, columns, count, out);
  }

  // out[column][row] for a few rows, straight from the weights as they lie in memory, which then are what takes the
  // time: lanes are units here, and each sum is added up in the end. `hidden` is packed as
  // weights are, [units / kRun][Rows][kRun]. T and Element as in pack_units.
  template <class T, class Element, int Rows, int Columns>
  static void dots_of(const float* hidden, const Element* weight, std::int64_t stride, std::int64_t count, bool first,
                      std::int64_t ahead, float* out) {
    constexpr std::int64_t kElements = kRun * static_cast<std::int64_t>(sizeof(T) / sizeof(Element));
    V sum[Columns][Rows];
    RK_UNROLL
    for (int j = 0; j < Columns; ++j) {
      RK_UNROLL
      for (int i = 0; i < Rows; ++i) sum[j][i] = Simd::set(0.0F);
    }
    for (std::int64_t start = 0; start < count; start += kElements, hidden += Rows * kRun) {
      V a[Columns], b[Columns];
      const std::int64_t left = count - start;
      RK_UNROLL
      for (int j = 0; j < Columns; ++j) {
        const Element* line = weight + j * stride + start;
        if (left >= kElements) {
          Simd::load_in_order(reinterpret_cast<const T*>(line), a[j], b[j]);
          const char* next = reinterpret_cast<const char*>(line + ahead);
          for (std::size_t byte = 0; byte < kRun * sizeof(T); byte += 64) __builtin_prefetch(next + byte, 0, 2);
        } else {
          T rest[kRun] = {};
          std::memcpy(rest, line, static_cast<std::size_t>(left) * sizeof(Element));
          Simd::load_in_order(rest, a[j], b[j]);
        }
      }
      RK_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const V low = Simd::load_one(hidden + i * kRun);
        RK_UNROLL
        for (int j = 0; j < Columns; ++j) sum[j][i] = Simd::multiply_add(a[j], low, sum[j][i]);
        const V high = Simd::load_one(hidden + i * kRun + kWidth);
        RK_UNROLL
        for (int j = 0; j < Columns; ++j) sum[j][i] = Simd::multiply_add(b[j], high, sum[j][i]);
      }
    }
    RK_UNROLL
    for (int j = 0; j < Columns; ++j) {
      RK_UNROLL
      for (int i = 0; i < Rows; ++i) {
        float& to = out[j * kRows + i];
        const float all = static_cast<float>(Simd::sum(sum[j][i]));
        to = first ? all : to + all;
      }
    }
  }

  template <class T, class Element, int Rows>
  static void dots_for(const float* hidden, const Element* weight, std::int64_t stride, std::int64_t columns,
                       std::int64_t count, bool first, float* out) {
    constexpr int kAtOnce = 2 * kColumns / Rows < 4 ? 2 * kColumns / Rows : 4;
    std::int64_t j = 0;
    for (; j + kAtOnce <= columns; j += kAtOnce) {
      const std::int64_t ahead = j + 2 * kAtOnce <= columns ? kAtOnce * stride : 0;
      dots_of<T, Element, Rows, kAtOnce>(hidden, weight + j * stride, stride, count, first, ahead, out + j * kRows);
    }
    for (; j < columns; ++j) {
      dots_of<T, Element, Rows, 1>(hidden, weight + j * stride, stride, count, first, 0, out + j * kRows);
    }
  }

  template <class T, class Element>
  static void dots(const float* hidden, std::int64_t rows, const void* data, std::int64_t stride, std::int64_t columns,
                   std::int64_t count, bool first, float* out) {
    const Element* weight = static_cast<const Element*>(data);
    const auto run = rows == 8   ? &dots_for<T, Element, 8>
                     : rows == 4 ? &dots_for<T, Element, 4>
                     : rows == 2 ? &dots_for<T, Element, 2>
                                 : &dots_for<T, Element, 1>;
    run(hidden, weight, stride, columns, count, first, out);
  }

  // Adds a tile of logits [columns][kRows] to the running softmax of a panel's rows.
  template <bool kEntropy>
  static void update(const float* logits, std::int64_t columns, float scale, const LinearState& state) {
    const V c = Simd::set(scale);
    for (int v = 0; v < kRows; v += kWidth) {
      V top = Simd::load_one(state.reference + v);
      const V before = top;
      for (std::int64_t j = 0; j < columns; ++j) top = Simd::max(top, Simd::load_one(logits + j * kRows + v));
      // The reference may lag by 2^12, which costs no accuracy: then it rarely moves at all.
      if (Simd::any_above(Simd::mul(c, Simd::sub(top, before)), Simd::set(12.0F))) {
        float tops[kWidth];
        Simd::store_one(tops, top);
        for (int lane = 0; lane < kWidth; ++lane) raise(tops[lane], scale, state, v + lane);
      }
      const V reference = Simd::load_one(state.reference + v);
      for (std::int64_t start = 0; start < columns; start += kFlush) {
        const std::int64_t end = start + kFlush < columns ? start + kFlush : columns;
        V sum = Simd::set(0.0F), weighted = sum;
        for (std::int64_t j = start; j < end; ++j) {
          const V t = Simd::mul(c, Simd::sub(Simd::load_one(logits + j * kRows + v), reference));
          if constexpr (kEntropy) {
            const V e = Simd::exp2(t);
            sum = Simd::add(sum, e);
            // Below -126 a weight is nothing, and 0 * -inf must not reach the sum.
            weighted = Simd::fma(Simd::max(Simd::set(-126.0F), t), e, weighted);
          } else {
            sum = Simd::add_exp2(t, sum);
          }
        }
        Simd::add_to(state.sum + v, sum);
        if constexpr (kEntropy) Simd::add_to(state.weighted + v, weighted);
      }
    }
  }

  // So few that sums in float lose nothing.
  static constexpr std::int64_t kFlush = 16;

  static void raise(float to, float scale, const LinearState& state, int row) {
    const float from = state.reference[row];
    if (!(to > from)) return;
    const double shift = static_cast<double>(scale) * (static_cast<double>(from) - static_cast<double>(to));
    const double factor = __builtin_exp2(shift);
    if (state.weighted != nullptr) {
      state.weighted[row] = factor == 0.0 ? 0.0 : (state.weighted[row] + shift * state.sum[row]) * factor;
    }
    state.sum[row] *= factor;
    state.reference[row] = to;
  }

  static constexpr LinearKernels table{
      kRows,
      kColumns,
      kRun,
      {&pack<float>, &pack<BFloat16>, &pack<Float16>},
      {&dots<float, float>, &dots<BFloat16, BFloat16>, &dots<Float16, Float16>},
      &product,
      &update<false>,
      &update<true>,
  };
};

}  // namespace rewardkit::detail

#undef RK_UNROLL
