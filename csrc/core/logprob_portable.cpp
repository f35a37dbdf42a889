#include "core/linear_block.hpp"
#include "core/logprob_row.hpp"

namespace rewardkit::detail {
namespace {

// Four floats in the vector extension that GCC and Clang share: SSE2, NEON or whatever the base instruction set has.
struct Portable {
  typedef float V __attribute__((vector_size(16)));
  typedef std::int32_t I __attribute__((vector_size(16)));
  static constexpr int width = 4;
  static constexpr int K = 4;
  static constexpr bool kUnderflowsToZero = false;
  static constexpr bool kOutrunsMemory = false;
  static constexpr int linear_columns = 6;  // 12 sums, 2 vectors of rows and 1 weight in 16 registers

  template <class T>
  static T minus_infinity() {
    return from_float<T>(-kInfinity);
  }
  template <class T>
  static float to_float(T x) {
    return rewardkit::to_float(x);
  }

  static V set(float x) { return V{x, x, x, x}; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V max(V a, V b) { return choose(a > b, a, b); }  // the second, where one is NaN
  static V fma(V a, V b, V c) {
    V result;
    for (int j = 0; j < width; ++j) {
#if defined(__FP_FAST_FMAF)
      result[j] = __builtin_fmaf(a[j], b[j], c[j]);
#else  // in double: one rounding, as with the instruction
      const double product = static_cast<double>(a[j]) * static_cast<double>(b[j]);
      result[j] = static_cast<float>(product + static_cast<double>(c[j]));
#endif
    }
    return result;
  }
  static V multiply_add(V a, V b, V c) { return c + a * b; }
  static V load_one(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store_one(float* p, V v) { std::memcpy(p, &v, sizeof v); }
  static void add_to(double* p, V v) {
    for (int j = 0; j < width; ++j) p[j] += static_cast<double>(v[j]);
  }
  static float largest(V v) {
    float result = v[0];
    for (int j = 1; j < width; ++j) result = result > v[j] ? result : v[j];
    return result;
  }
  static bool any_nan(V v) {
    const I nan = v != v;
    return (nan[0] | nan[1] | nan[2] | nan[3]) != 0;
  }
  static bool any_above(V a, V b) {
    const I above = a > b;
    return (above[0] | above[1] | above[2] | above[3]) != 0;
  }
  static double sum(V v) {
    double result = 0.0;
    for (int j = 0; j < width; ++j) result += static_cast<double>(v[j]);
    return result;
  }

  static V exp2(V t) {  // see Avx2::exp2
    t = choose(set(-126.0F) > t, set(-126.0F), t);
    t = choose(set(127.0F) < t, set(127.0F), t);
    const V magic = set(12582912.0F + 127.0F);
    const V k = t + magic;
    const V f = t - (k - magic);
    V p = 0x1.5c08e6p-10F * f + 0x1.3d0c54p-7F;
    p = p * f + 0x1.c6b6e4p-5F;
    p = p * f + 0x1.ebf918p-3F;
    p = p * f + 0x1.62e428p-1F;
    p = p * f + 0x1.000002p+0F;
    I bits;
    std::memcpy(&bits, &k, sizeof bits);
    typedef std::uint32_t U __attribute__((vector_size(16)));
    const U shifted = reinterpret_cast<U>(bits) << 23;
    V scale;
    std::memcpy(&scale, &shifted, sizeof scale);
    return p * scale;
  }
  static V add_exp2(V t, V total) { return total + exp2(t); }

  static void prefetch(const void*, std::size_t) {}

  template <class T>
  static void load(const T* p, V& a, V& b) {
    load_in_order(p, a, b);
  }
  template <class T>
  static void load_in_order(const T* p, V& a, V& b) {
    float floats[2 * width];
    for (int j = 0; j < 2 * width; ++j) floats[j] = rewardkit::to_float(p[j]);
    a = load_one(floats);
    b = load_one(floats + width);
  }
  template <class T>
  static void store_in_order(T* p, V a, V b) {
    for (int j = 0; j < width; ++j) p[j] = from_float<T>(a[j]);
    for (int j = 0; j < width; ++j) p[width + j] = from_float<T>(b[j]);
  }

 private:
  static V choose(I mask, V a, V b) {
    I left, right;
    std::memcpy(&left, &a, sizeof left);
    std::memcpy(&right, &b, sizeof right);
    const I bits = (left & mask) | (right & ~mask);
    V result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
};

}  // namespace

const LogprobKernels logprob_portable = KernelsOf<Portable>::table;
const LinearKernels linear_portable = LinearBlock<Portable>::table;

}  // namespace rewardkit::detail
