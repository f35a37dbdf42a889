// The bin rule and the fixed-point sums of the calibration metrics, for the CPU kernels, the CUDA kernels and their
// emulation alike: all three give the same bits, in any order of addition.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/host_device.hpp"

namespace rewardkit {

// More binary places than this do not leave room for a block's count beside its sum (see calibration.cpp).
inline constexpr int kMaxFractionBits = 48;

// A confidence's bin: the number of thresholds that are <= it. Thresholds ascend; there are bins - 1 of them. Every
// edge rule (left-closed, right-closed, the released linspace code, equal mass) is a choice of thresholds, made in
// Python.
template <class T>
RK_HOST_DEVICE inline int bin_of(T confidence, const T* thresholds, int count) {
  int low = 0;
  while (count > 0) {
    const int half = count / 2;
    const bool above = confidence >= thresholds[low + half];
    low = above ? low + half + 1 : low;
    count = above ? count - half - 1 : half;
  }
  return low;
}

// False for NaN too. Such a value is counted as invalid and takes no other part.
template <class T>
RK_HOST_DEVICE inline bool valid_confidence(T confidence) {
  return confidence >= T(0) && confidence <= T(1);
}

RK_HOST_DEVICE inline std::int64_t bits_of(double value) {
  std::int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Adding this to a number in [0, 1] leaves round_half_even(x * 2^fraction_bits) in the sum's low bits, since doubles
// near it are 2^-fraction_bits apart.
RK_HOST_DEVICE inline double fixed_point_magic(int fraction_bits) {
  const std::int64_t exponent = 1023 + 52 - fraction_bits;
  const std::int64_t bits = (exponent << 52) | (std::int64_t{1} << 51);
  double magic;
  std::memcpy(&magic, &bits, sizeof magic);
  return magic;
}

// round_half_even(x * 2^fraction_bits) for x in [0, 1].
RK_HOST_DEVICE inline std::int64_t fixed_point(double x, double magic) {
  return bits_of(x + magic) - bits_of(magic);
}

// round_half_even(x^2 * 2^fraction_bits) for |x| <= 1; the square is exact, being part of one fused operation. Written
// as fma on purpose: whether a compiler would fuse x * x + magic differs between devices.
RK_HOST_DEVICE inline std::int64_t fixed_point_square(double x, double magic) {
  return bits_of(std::fma(x, x, magic)) - bits_of(magic);
}

}  // namespace rewardkit
