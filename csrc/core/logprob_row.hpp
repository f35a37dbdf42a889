// The passes over one row, written once over a `Simd` policy; included by one source file per instruction set.
//
// Every function here is a template over Simd, and each source file declares its Simd in an anonymous namespace. So no
// two files share an instantiation, and the linker can never hand code with AVX-512 in it to a processor without. For
// the same reason nothing here calls an inline function of another header.
//
// Simd has:  V (width floats), K (loads per step);
//   kUnderflowsToZero (exp2 of -inf is 0), kOutrunsMemory (the sums over floats are faster than memory);
//   load(const T*, V& a, V& b)         2 * width numbers, in any order
//   load_in_order(const T*, V& a, V& b), store_in_order(T*, V a, V b)
//   set(float), add, sub, mul, max, fma(a, b, c) = a b + c, sum(V) -> double, largest(V) -> float, any_nan(V) -> bool
//   exp2(V t) -> V, and add_exp2(V t, V sum) -> V: sum + 2^t. Both give 0 or a number below 1e-37 for t < -126 (-inf
//   too), NaN for NaN, and for t >= 128 something not below 1e38.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/logprob_kernels.hpp"
#include "core/softmax.hpp"

namespace rewardkit::detail {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr double kNan = __builtin_nan("");

// float sums are flushed to double once per block, which keeps them exact enough and the block in the L1 cache.
inline constexpr std::int64_t kBlock = 2048;
// A block whose sum of 2^t reaches this holds a t of 1 to 12 or more, or is NaN: its reference is raised and the block
// done again. Below, every t is under 12, so that rounding t costs at most 5e-7. A new reference is the block's largest
// t, so a block of equal numbers (sum 2048) stays below.
inline constexpr double kRaiseAt = 4096.0;
// Up to here (in units of log 2) a float holds every whole number, so that the reference and t are exact.
inline constexpr double kWholeUpTo = 4194304.0;

// A core reads memory faster as several streams than as one, whose prefetching starts anew on every page. So a long row
// is cut into parts that are read side by side: a block is then a share of each.
inline constexpr std::int64_t kParts = 8;
inline constexpr std::int64_t kShare = kBlock / kParts;

template <class Simd, class T>
struct Row {
  using V = typename Simd::V;
  static constexpr std::int64_t kPair = 2 * Simd::width;
  static constexpr std::int64_t kStep = kPair * Simd::K;

  static_assert(kShare % kStep == 0);

  // `count` numbers from each of `parts` places, `apart` numbers from one to the next.
  struct Block {
    const T* data;
    std::int64_t count, parts, apart;
  };

  // Whether a long row is worth cutting: not where its arithmetic takes longer than its memory.
  static constexpr bool kCut = Simd::kOutrunsMemory && sizeof(T) == 4;

  // How long each part is, or 0. It is an odd number of shares, since at distances of whole pages all parts would
  // compete for the same few lines of the cache.
  static std::int64_t length_of_parts(std::int64_t columns) {
    if (!kCut || columns < 8 * kBlock) return 0;
    const std::int64_t shares = columns / kParts / kShare;
    return (shares % 2 == 0 ? shares - 1 : shares) * kShare;
  }

  // The last numbers of a row, filled up with -inf to a whole step.
  struct Tail {
    T data[kStep];
    Tail(const T* row, std::int64_t count) {
      for (T& one : data) one = Simd::template minus_infinity<T>();
      std::memcpy(data, row, static_cast<std::size_t>(count) * sizeof(T));
    }
  };

  struct Largest {
    float value = -kInfinity;
    bool nan = false;
    bool proper() const { return !nan && value < kInfinity; }
  };

  static void largest_of(const T* data, std::int64_t count, V& top, bool& nan) {
    for (std::int64_t j = 0; j < count; j += kPair) {
      V a, b;
      Simd::load(data + j, a, b);
      nan = nan || Simd::any_nan(a) || Simd::any_nan(b);
      top = Simd::max(top, Simd::max(a, b));
    }
  }

  static Largest largest(const Block& block) {
    Largest result;
    V top = Simd::set(result.value);
    const std::int64_t whole = block.count - block.count % kStep;
    for (std::int64_t k = 0; k < block.parts; ++k) largest_of(block.data + k * block.apart, whole, top, result.nan);
    if (whole < block.count) {
      const Tail tail(block.data + whole, block.count - whole);
      largest_of(tail.data, kStep, top, result.nan);
    }
    result.value = Simd::largest(top);
    return result;
  }

  // A dominant token makes one lane of `sum` about 1, and everything smaller than half a unit in its last place would
  // be swallowed there. So each step is summed on its own and added with Kahan's compensation.
  //
  // kMasked: a masked number has t = -inf, and 0 * -inf must not reach `weighted`; below -126 a weight is nothing
  // anyway. Where 2^t underflows to 0, NaN in `weighted` alone tells that there was one, and only such blocks pay for
  // the cut.
  template <bool kEntropy>
  struct Accumulators {
    V sum = Simd::set(0.0F);
    V carry = Simd::set(0.0F);
    V weighted[2] = {Simd::set(0.0F), Simd::set(0.0F)};

    template <bool kMasked>
    void add(const T* data, V c, V minus_reference) {
      V a, b;
      Simd::load(data, a, b);
      V step_a = first<kMasked>(Simd::fma(a, c, minus_reference), weighted[0]);
      V step_b = first<kMasked>(Simd::fma(b, c, minus_reference), weighted[1]);
      for (int k = 1; k < Simd::K; ++k) {
        Simd::load(data + k * kPair, a, b);
        step_a = next<kMasked>(Simd::fma(a, c, minus_reference), step_a, weighted[0]);
        step_b = next<kMasked>(Simd::fma(b, c, minus_reference), step_b, weighted[1]);
      }
      const V step = Simd::sub(Simd::add(step_a, step_b), carry);
      const V total = Simd::add(sum, step);
      carry = Simd::sub(Simd::sub(total, sum), step);
      sum = total;
    }

    template <bool kMasked>
    static V first(V t, V& weight) {
      const V e = Simd::exp2(t);
      if constexpr (kEntropy) weight = weigh<kMasked>(t, e, weight);
      return e;
    }
    template <bool kMasked>
    static V next(V t, V so_far, V& weight) {
      if constexpr (!kEntropy) return Simd::add_exp2(t, so_far);
      const V e = Simd::exp2(t);
      weight = weigh<kMasked>(t, e, weight);
      return Simd::add(so_far, e);
    }
    template <bool kMasked>
    static V weigh(V t, V e, V so_far) {
      if constexpr (kMasked) t = Simd::max(Simd::set(-126.0F), t);
      return Simd::fma(t, e, so_far);
    }
  };

  // 2^x for a whole x, without a call: exact in range, 0 below, never used above.
  static double power_of_two(double x) {
    if (x < -1000.0) return 0.0;
    double result = 1.0;
    std::int64_t bits = (static_cast<std::int64_t>(x) + 1023) << 52;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }

  // To the nearest whole number; |x| < 2^51.
  static double whole(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

  template <bool kEntropy, bool kMasked>
  static void add_block(const Block& block, V c, V minus_reference, double& sum, double& weighted) {
    Accumulators<kEntropy> lanes;
    if (kCut && block.parts == kParts) {
      for (std::int64_t j = 0; j < kShare; j += kStep) {
        const T* data = block.data + j;
        for (std::int64_t k = 0; k < kParts; ++k, data += block.apart) {
          lanes.template add<kMasked>(data, c, minus_reference);
        }
      }
    } else {
      const std::int64_t steps = block.count - block.count % kStep;
      for (std::int64_t j = 0; j < steps; j += kStep) {
        Simd::prefetch(block.data + j, kStep * sizeof(T));
        lanes.template add<kMasked>(block.data + j, c, minus_reference);
      }
      if (steps < block.count) {
        const Tail tail(block.data + steps, block.count - steps);
        lanes.template add<true>(tail.data, c, minus_reference);
      }
    }
    sum = Simd::sum(lanes.sum);
    if constexpr (kEntropy) weighted = Simd::sum(Simd::add(lanes.weighted[0], lanes.weighted[1]));
  }

  template <bool kEntropy>
  static RowSums sums(const void* data, std::int64_t columns, float c) {
    const T* row = static_cast<const T*>(data);
    RowSums result{0.0, 0.0, 0.0};
    bool seen = false;
    double skipped = -kInfinity;  // the largest number of the blocks that were too far down to be looked at
    const V cs = Simd::set(c);
    const std::int64_t part = length_of_parts(columns);
    for (std::int64_t start = 0; start < columns;) {
      const std::int64_t count = columns - start < kBlock ? columns - start : kBlock;
      const Block block =
          start < kParts * part ? Block{row + start / kParts, kShare, kParts, part} : Block{row + start, count, 1, 0};
      double sum = 0.0, weighted = 0.0;
      bool raise = !seen;
      if (seen) {
        const V minus_reference = Simd::set(static_cast<float>(-result.reference));
        add_block<kEntropy, !Simd::kUnderflowsToZero>(block, cs, minus_reference, sum, weighted);
        if (kEntropy && Simd::kUnderflowsToZero && weighted != weighted) {
          add_block<kEntropy, true>(block, cs, minus_reference, sum, weighted);
        }
        raise = !(sum < kRaiseAt);
      }
      if (raise) {
        const Largest top = largest(block);
        if (!top.proper()) return {0.0, kNan, kNan};
        const double scaled = static_cast<double>(top.value) * static_cast<double>(c);
        if (scaled > kWholeUpTo) return wide<kEntropy>(row, columns, c);
        if (scaled < -2.0 * kWholeUpTo) {  // masked, by -inf or by a large negative number
          skipped = scaled > skipped ? scaled : skipped;
          start += count;
          continue;
        }
        const double reference = whole(scaled);
        if (seen) {
          if (reference <= result.reference) return {0.0, kNan, kNan};  // cannot be; better loud than endless
          const double shift = result.reference - reference, scale = power_of_two(shift);
          result.weighted = (result.weighted + shift * result.sum) * scale;
          result.sum *= scale;
          if (scale == 0.0) result.weighted = 0.0;
        }
        result.reference = reference;
        seen = true;
        continue;  // the same block again, now below its new reference
      }
      result.sum += sum;
      result.weighted += weighted;
      start += count;
    }
    // A skipped block weighs nothing beside a proper one; a row without any is all about what was skipped.
    if (skipped > -kInfinity && (!seen || result.reference - skipped < 1000.0)) return wide<kEntropy>(row, columns, c);
    return result;
  }

  // Rows with numbers of millions, in double and without any hurry.
  template <bool kEntropy>
  static RowSums wide(const T* row, std::int64_t columns, float c) {
    const Largest top = largest({row, columns, 1, 0});
    if (!top.proper()) return {0.0, kNan, kNan};
    RowSums result{static_cast<double>(top.value) * static_cast<double>(c), 0.0, 0.0};
    for (std::int64_t j = 0; j < columns; ++j) {
      const double t = static_cast<double>(Simd::to_float(row[j])) * static_cast<double>(c) - result.reference;
      if (!(t > -1000.0)) continue;
      const double e = __builtin_exp2(t);
      result.sum += e;
      result.weighted += t * e;
    }
    return result;
  }

  static void gradient(const void* data, std::int64_t columns, const GradientRow& how, void* out_data) {
    const T* row = static_cast<const T*>(data);
    T* out = static_cast<T*>(out_data);
    const std::int64_t pairs = columns - columns % kPair;
    for (std::int64_t j = 0; j < pairs; j += kPair) gradient_pair(row + j, how, out + j);
    if (pairs < columns) {
      const Tail tail(row + pairs, columns - pairs);
      T last[kPair];
      gradient_pair(tail.data, how, last);
      std::memcpy(out + pairs, last, static_cast<std::size_t>(columns - pairs) * sizeof(T));
    }
  }

  static void gradient_pair(const T* in, const GradientRow& how, T* out) {
    V a, b;
    Simd::load_in_order(in, a, b);
    Simd::store_in_order(out, gradient_of(a, how), gradient_of(b, how));
  }

  // -p (g + h (log p + H)); -inf is cut to where p is 0, so that p log p is 0 too.
  static V gradient_of(V x, const GradientRow& how) {
    // The scale as two floats: its rounding alone would shift log p by 4e-6 where logits are about 60.
    x = Simd::max(Simd::set(-1e30F), x);  // -inf times a negative rest would be +inf
    const V close = Simd::fma(x, Simd::set(how.scale), Simd::set(-how.lse));
    const V scaled = Simd::fma(x, Simd::set(how.scale_rest), close);
    const V log_p = Simd::max(Simd::set(-200.0F), scaled);
    const V p = Simd::exp2(Simd::mul(log_p, Simd::set(1.44269504F)));
    const V factor =
        Simd::fma(Simd::set(-how.grad_entropy), Simd::add(log_p, Simd::set(how.entropy)), Simd::set(-how.grad_logprob));
    return Simd::mul(p, factor);
  }
};

template <class Simd>
struct KernelsOf {
  using F = Row<Simd, float>;
  using B = Row<Simd, BFloat16>;
  using H = Row<Simd, Float16>;
  static constexpr LogprobKernels table{
      {&F::template sums<false>, &B::template sums<false>, &H::template sums<false>},
      {&F::template sums<true>, &B::template sums<true>, &H::template sums<true>},
      {&F::gradient, &B::gradient, &H::gradient},
  };
};

}  // namespace rewardkit::detail
