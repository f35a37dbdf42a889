// Scalar maths of log-probabilities, shared by the CPU kernels, the CUDA kernels and their emulation: number formats
// and the online softmax, so that all three follow one definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/host_device.hpp"

namespace rewardkit {

// bfloat16 and float16 as their 16 bits; there is no arithmetic in them, only conversion.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

namespace detail {

// __builtin_memcpy is known to g++, clang and nvcc alike, on host and device, and costs nothing.
RK_HOST_DEVICE inline std::uint32_t float_bits(float value) {
  std::uint32_t bits = 0;
  static_assert(sizeof bits == sizeof value);
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

RK_HOST_DEVICE inline float float_of_bits(std::uint32_t bits) {
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace detail

RK_HOST_DEVICE inline float to_float(float value) {
  return value;
}

RK_HOST_DEVICE inline float to_float(BFloat16 value) {
  return detail::float_of_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

RK_HOST_DEVICE inline float to_float(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1FU;
  const std::uint32_t fraction = value.bits & 0x3FFU;
  if (exponent == 0x1FU) return detail::float_of_bits(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return detail::float_of_bits(sign | ((exponent + 112U) << 23) | (fraction << 13));
  // Subnormal: fraction * 2^-24, exact in float.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return detail::float_of_bits(sign | detail::float_bits(magnitude));
}

// Rounds to nearest, ties to even; NaN stays NaN.
template <class T>
RK_HOST_DEVICE T from_float(float value);

template <>
RK_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}

template <>
RK_HOST_DEVICE inline BFloat16 from_float<BFloat16>(float value) {
  const std::uint32_t bits = detail::float_bits(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

template <>
RK_HOST_DEVICE inline Float16 from_float<Float16>(float value) {
  const std::uint32_t bits = detail::float_bits(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (magnitude >= 0x477FF000U)
    return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {                          // subnormal: units of 2^-24
    // Adding 0.5 puts the unit of 2^-24 at the last bit of the float, so that the addition itself rounds.
    const float shifted = detail::float_of_bits(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (detail::float_bits(shifted) - 0x3F000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13))};
}

// The running state of a softmax over a row of which only a part has been seen, relative to a reference `max` (which
// need not be the largest value, only large enough that nothing overflows):
//   sum = sum_j exp(x_j - max),  weighted = sum_j (x_j - max) exp(x_j - max)  (for the entropy).
// Rows that are no distribution come out as NaN, as in torch: all -inf (0/0), any +inf (inf - inf), any NaN.
template <class Real>
struct OnlineSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  Real sum = 0;
  Real weighted = 0;

  // Moves the reference; nothing has been seen while it is -inf.
  RK_HOST_DEVICE void raise(float to) {
    if (sum != Real(0)) {
      const Real shift = static_cast<Real>(max) - static_cast<Real>(to);
      const Real scale = exp_(shift);
      weighted = scale == Real(0) ? Real(0) : (weighted + shift * sum) * scale;
      sum *= scale;
    }
    max = to;
  }

  RK_HOST_DEVICE void push(float x) {
    if (x == -std::numeric_limits<float>::infinity()) return;  // exp is 0, and 0 * -inf must not reach `weighted`
    if (!(x <= max)) raise(x);
    const Real shift = static_cast<Real>(x) - static_cast<Real>(max);
    const Real e = exp_(shift);
    sum += e;
    weighted += e == Real(0) ? Real(0) : shift * e;
  }

  RK_HOST_DEVICE void merge(const OnlineSoftmax& other) {
    if (other.sum == Real(0)) return;
    OnlineSoftmax right = other;
    if (right.max > max || max != max) {
      raise(right.max);
    } else if (right.max != max) {
      right.raise(max);
    }
    sum += right.sum;
    weighted += right.weighted;
  }

 private:
  RK_HOST_DEVICE static float exp_(float x) { return ::expf(x); }
  RK_HOST_DEVICE static double exp_(double x) { return ::exp(x); }
};

// What a finished row gives. `target` is the target's logit after the temperature. The log-probability is clamped at 0,
// since rounding may lift it above; NaN stays NaN.
RK_HOST_DEVICE inline double log_sum_exp(float max, double sum) {
  if (sum == 0.0) return std::numeric_limits<double>::quiet_NaN();  // nothing but -inf
  return static_cast<double>(max) + ::log(sum);
}

RK_HOST_DEVICE inline double logprob_of(double target, float max, double sum) {
  const double value = target - log_sum_exp(max, sum);
  return value > 0.0 ? 0.0 : value;
}

// -sum p log p in nats, at least 0.
RK_HOST_DEVICE inline double entropy_of(double sum, double weighted) {
  const double value = ::log(sum) - weighted / sum;
  return value < 0.0 ? 0.0 : value;
}

}  // namespace rewardkit
