// The kernels that the GPU gets, on the emulator: values against plain loops in double, in several orders of threads
// and blocks, and properties that the Python tests cannot see under a sanitizer.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "core/bins.hpp"
#include "core/softmax.hpp"
#include "cuda/launchers.hpp"
#include "emulator/emulator.hpp"
#include "tests/check.hpp"

namespace rewardkit::cuda {
namespace {

constexpr Place kPlace{0, nullptr};
constexpr std::int64_t kIgnore = -100;

template <class T>
constexpr DType dtype_of() {
  if (sizeof(T) == sizeof(float)) return DType::float32;
  return std::is_same_v<T, BFloat16> ? DType::bfloat16 : DType::float16;
}

template <class T>
struct Rows {
  std::vector<T> store;
  std::int64_t rows, columns, stride, start;
  std::vector<std::int64_t> targets;

  // The store ends with the last row, so that AddressSanitizer sees any step beyond it.
  Rows(std::int64_t rows_, std::int64_t columns_, std::int64_t gap, std::int64_t start_, unsigned seed)
      : rows(rows_), columns(columns_), stride(columns_ + gap), start(start_) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(-20.0F, 4.0F);
    store.resize(static_cast<std::size_t>(start + (rows - 1) * stride + columns));
    for (T& value : store) value = from_float<T>(normal(random));
    for (std::int64_t i = 0; i < rows; ++i)
      targets.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(columns)));
    targets.back() = columns - 1;
  }
  const T* data() const { return store.data() + start; }
  double at(std::int64_t row, std::int64_t column) const { return to_float(data()[row * stride + column]); }
  Logits logits() const { return {data(), dtype_of<T>(), rows, columns, stride}; }
};

struct Forward {
  std::vector<float> logprob, entropy, lse;
  bool operator==(const Forward& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(logprob, other.logprob) && same(entropy, other.entropy) && same(lse, other.lse);
  }
};

template <class T>
Forward forward(const Rows<T>& in, double temperature, bool shared_rows) {
  const auto n = static_cast<std::size_t>(in.rows);
  Forward out{std::vector<float>(n, 7.0F), std::vector<float>(n, 7.0F), std::vector<float>(n, 7.0F)};
  std::vector<char> workspace(shared_rows ? token_logprobs_workspace(in.rows, in.columns) : 0);
  const int error =
      token_logprobs(in.logits(), in.targets.data(), temperature, kIgnore, out.logprob.data(), out.entropy.data(),
                     out.lse.data(), workspace.empty() ? nullptr : workspace.data(), kPlace);
  RK_CHECK(error == 0, "%s", error_text(error));
  return out;
}

template <class T>
void logprobs(std::int64_t rows, std::int64_t columns, std::int64_t gap, std::int64_t start) {
  const Rows<T> in(rows, columns, gap, start, static_cast<unsigned>(columns));
  const double temperature = 0.7;
  const Forward out = forward(in, temperature, true);
  for (std::int64_t i = 0; i < rows; ++i) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0.0, weighted = 0.0;
    for (std::int64_t j = 0; j < columns; ++j) top = std::max(top, in.at(i, j) / temperature);
    for (std::int64_t j = 0; j < columns; ++j) {
      const double x = in.at(i, j) / temperature - top, e = std::exp(x);
      sum += e;
      weighted += x * e;
    }
    const auto k = static_cast<std::size_t>(i);
    const double logprob = in.at(i, in.targets[k]) / temperature - top - std::log(sum);
    RK_CHECK(std::abs(out.logprob[k] - logprob) <= 1e-6 * (1 + std::abs(logprob)), "%g, not %g", out.logprob[k],
             logprob);
    const double entropy = std::log(sum) - weighted / sum;
    RK_CHECK(std::abs(out.entropy[k] - entropy) <= 2e-6 * (1 + entropy), "%g, not %g", out.entropy[k], entropy);
    const double lse = top + std::log(sum);
    RK_CHECK(std::abs(out.lse[k] - lse) <= 1e-6 * (1 + std::abs(lse)), "%g, not %g", out.lse[k], lse);
  }
  // Shared by several blocks or not, one row or many: the same bits.
  RK_CHECK(forward(in, temperature, false) == out, "rows %lld columns %lld", static_cast<long long>(rows),
           static_cast<long long>(columns));

  std::vector<float> grad_logprob(static_cast<std::size_t>(rows), 0.5F), grad_entropy(grad_logprob.size(), -0.25F);
  std::vector<T> grad(static_cast<std::size_t>((rows - 1) * in.stride + columns), from_float<T>(9.0F));
  const int error =
      token_logprobs_backward(in.logits(), in.targets.data(), temperature, kIgnore, out.lse.data(), out.entropy.data(),
                              grad_logprob.data(), grad_entropy.data(), grad.data(), in.stride, kPlace);
  RK_CHECK(error == 0, "%s", error_text(error));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto k = static_cast<std::size_t>(i);
    double worst = 0.0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double log_p = in.at(i, j) / temperature - out.lse[k], p = std::exp(log_p);
      const double want =
          (0.5 * ((j == in.targets[k] ? 1.0 : 0.0) - p) + 0.25 * p * (log_p + out.entropy[k])) / temperature;
      const double got = to_float(grad[static_cast<std::size_t>(i * in.stride + j)]);
      const double allowed = sizeof(T) == 4 ? 2e-6 : 8e-3 * std::abs(want) + 1e-6;
      worst = std::max(worst, std::abs(got - want) - allowed);
    }
    RK_CHECK(worst <= 0.0, "row %lld: over by %g", static_cast<long long>(i), worst);
    for (std::int64_t j = columns; i + 1 < rows && j < in.stride; ++j) {
      RK_CHECK(to_float(grad[static_cast<std::size_t>(i * in.stride + j)]) == 9.0F, "wrote between the rows");
    }
  }
}

void alone_or_in_company() {
  const Rows<BFloat16> many(40, 4096 * 3, 0, 0, 5);
  const Forward all = forward(many, 1.0, true);
  for (const std::int64_t row : {0, 17, 39}) {
    Rows<BFloat16> one = many;
    one.start += row * one.stride;
    one.rows = 1;
    one.targets = {many.targets[static_cast<std::size_t>(row)]};
    RK_CHECK(forward(one, 1.0, true).logprob[0] == all.logprob[static_cast<std::size_t>(row)], "row %lld",
             static_cast<long long>(row));
  }
}

void odd_targets() {
  Rows<float> in(5, 100, 0, 0, 3);
  in.targets = {kIgnore, -1, 100, std::numeric_limits<std::int64_t>::max(), 0};
  for (float& value : in.store) {
    if (&value < in.store.data() + 100) value = std::numeric_limits<float>::quiet_NaN();  // the ignored row is not read
  }
  const Forward out = forward(in, 1.0, true);
  RK_CHECK(out.logprob[0] == 0.0F && out.entropy[0] == 0.0F && out.lse[0] == 0.0F, "ignored");
  for (std::size_t i = 1; i < 4; ++i) {
    RK_CHECK(std::isnan(out.logprob[i]) && std::isnan(out.entropy[i]) && std::isnan(out.lse[i]), "row %zu", i);
  }
  RK_CHECK(out.logprob[4] < 0.0F, "%g", out.logprob[4]);
}

void updates() {
  const Rows<Float16> in(3, 2500, 1, 1, 11);
  std::vector<float> top(3, -std::numeric_limits<float>::infinity()), target(3, std::nanf(""));
  std::vector<double> sum(3, 0.0), weighted(3, 0.0);
  for (std::int64_t first = 0; first < in.columns; first += 999) {
    const std::int64_t columns = std::min<std::int64_t>(999, in.columns - first);
    const Logits tile{in.data() + first, DType::float16, in.rows, columns, in.stride};
    const int error = online_softmax_update(tile, first, in.targets.data(), 1.0, top.data(), sum.data(),
                                            weighted.data(), target.data(), kPlace);
    RK_CHECK(error == 0, "%s", error_text(error));
  }
  const Forward whole = forward(in, 1.0, true);
  for (std::size_t i = 0; i < 3; ++i) {
    const double lse = top[i] + std::log(sum[i]);
    RK_CHECK(std::abs(lse - whole.lse[i]) < 2e-5, "%g, not %g", lse, whole.lse[i]);
    RK_CHECK(std::abs(target[i] - lse - whole.logprob[i]) < 2e-5, "%g", whole.logprob[i]);
    RK_CHECK(std::abs(std::log(sum[i]) - weighted[i] / sum[i] - whole.entropy[i]) < 2e-5, "%g", whole.entropy[i]);
  }
}

void spans() {
  const std::vector<float> logprobs{-1.0F, -2.0F, 0.5F, -3.0F};
  const std::vector<std::int64_t> offsets{0, 2, 2, 4, 5, 4};
  std::vector<double> out(5);
  const int error =
      span_reduce(logprobs.data(), false, 4, offsets.data(), 5, SpanReduction::sum_log, out.data(), kPlace);
  RK_CHECK(error == 0, "%s", error_text(error));
  RK_CHECK(out[0] == -3.0 && out[2] == -3.0, "%g %g", out[0], out[2]);
  RK_CHECK(std::isnan(out[1]) && std::isnan(out[3]) && std::isnan(out[4]), "empty, beyond the end, descending");
}

template <class T>
void histogram(std::int64_t size, std::int64_t n_groups, int bins) {
  std::mt19937 random(7);
  std::uniform_real_distribution<T> uniform(T(-0.1), T(1.1));
  std::vector<T> confidence, thresholds;
  std::vector<std::uint8_t> correct;
  std::vector<std::int64_t> groups;
  for (int i = 1; i < bins; ++i) thresholds.push_back(T(i) / T(bins));
  for (std::int64_t i = 0; i < size; ++i) {
    confidence.push_back(i % 50 == 0 ? std::numeric_limits<T>::quiet_NaN() : uniform(random));
    correct.push_back(random() % 2 != 0);
    groups.push_back(static_cast<std::int64_t>(random()) % n_groups);
  }
  if (size > 2) groups[2] = n_groups;  // refused
  const auto cells = static_cast<std::size_t>(n_groups * bins * 3), count = static_cast<std::size_t>(n_groups);
  std::vector<std::int64_t> got(cells, 5), squared(count, 5), invalid(count, 5), refused(2, 5);
  const CalibrationArrays<T> in{confidence.data(), correct.data(), groups.data(), size,
                                thresholds.data(), bins,           n_groups,      40};
  const int error = calibration_histogram(in, got.data(), squared.data(), invalid.data(), refused.data(), kPlace);
  RK_CHECK(error == 0, "%s", error_text(error));
  std::vector<std::int64_t> cells_want(cells), squared_want(count), invalid_want(count);
  const double magic = fixed_point_magic(40);
  std::int64_t nans = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (groups[k] == n_groups) continue;
    const auto group = static_cast<std::size_t>(groups[k]);
    if (!valid_confidence(confidence[k])) {
      nans += std::isnan(confidence[k]);
      ++invalid_want[group];
      continue;
    }
    std::int64_t* const cell =
        cells_want.data() + (group * static_cast<std::size_t>(bins) +
                             static_cast<std::size_t>(bin_of(confidence[k], thresholds.data(), bins - 1))) *
                                3;
    ++cell[0];
    cell[1] += correct[k];
    cell[2] += fixed_point(confidence[k], magic);
    squared_want[group] += fixed_point_square(static_cast<double>(confidence[k]) - correct[k], magic);
  }
  RK_CHECK(got == cells_want && squared == squared_want && invalid == invalid_want && refused[0] == (size > 2) &&
               refused[1] == nans,
           "size %lld groups %lld bins %d", static_cast<long long>(size), static_cast<long long>(n_groups), bins);
}

void bags() {
  std::mt19937 random(9);
  std::vector<std::int32_t> predicted, referred;
  std::vector<std::int64_t> prediction_offsets{0}, reference_offsets{0}, answer_rows{0}, gold_rows{0}, pair_rows{0};
  for (int rollout = 0; rollout < 12; ++rollout) {
    const auto answers = static_cast<std::int64_t>(random() % 4), golds = static_cast<std::int64_t>(random() % 3);
    for (std::int64_t i = 0; i < answers; ++i) {
      for (unsigned k = random() % 70; k > 0; --k) predicted.push_back(static_cast<std::int32_t>(random() % 9));
      prediction_offsets.push_back(static_cast<std::int64_t>(predicted.size()));
    }
    for (std::int64_t i = 0; i < golds; ++i) {
      for (unsigned k = random() % 40; k > 0; --k) referred.push_back(static_cast<std::int32_t>(random() % 9));
      reference_offsets.push_back(static_cast<std::int64_t>(referred.size()));
    }
    answer_rows.push_back(answer_rows.back() + answers);
    gold_rows.push_back(gold_rows.back() + golds);
    pair_rows.push_back(pair_rows.back() + answers * golds);
  }
  std::vector<double> out(static_cast<std::size_t>(pair_rows.back()), 7.0);
  const Bags<std::int32_t> in{predicted.data(),   prediction_offsets.data(), referred.data(),  reference_offsets.data(),
                              answer_rows.data(), gold_rows.data(),          pair_rows.data(), 12,
                              pair_rows.back()};
  const int error = bag_f1(in, out.data(), kPlace);
  RK_CHECK(error == 0, "%s", error_text(error));
  std::size_t pair = 0;
  for (std::size_t b = 0; b < 12; ++b) {
    for (auto a = static_cast<std::size_t>(answer_rows[b]); a < static_cast<std::size_t>(answer_rows[b + 1]); ++a) {
      for (auto c = static_cast<std::size_t>(gold_rows[b]); c < static_cast<std::size_t>(gold_rows[b + 1]);
           ++c, ++pair) {
        std::map<std::int32_t, int> have;
        for (auto i = reference_offsets[c]; i < reference_offsets[c + 1]; ++i)
          ++have[referred[static_cast<std::size_t>(i)]];
        int common = 0;
        for (auto i = prediction_offsets[a]; i < prediction_offsets[a + 1]; ++i) {
          common += have[predicted[static_cast<std::size_t>(i)]]-- > 0;
        }
        const double precision = double(common) / double(prediction_offsets[a + 1] - prediction_offsets[a]);
        const double recall = double(common) / double(reference_offsets[c + 1] - reference_offsets[c]);
        const double want = common == 0 ? 0.0 : 2 * precision * recall / (precision + recall);
        RK_CHECK(out[pair] == want, "pair %zu: %g, not %g", pair, out[pair], want);
      }
    }
  }
  RK_CHECK(pair == out.size(), "%zu pairs", pair);
}

void other_device() {
  const Rows<float> in(2, 50, 0, 0, 1);
  std::vector<float> out(2);
  const int there =
      token_logprobs(in.logits(), in.targets.data(), 1.0, kIgnore, out.data(), nullptr, nullptr, nullptr, {1, nullptr});
  RK_CHECK(there == 0 && emulator::stats().last_device == 1, "the launch goes to the caller's device");
  const int back =
      token_logprobs(in.logits(), in.targets.data(), 1.0, kIgnore, out.data(), nullptr, nullptr, nullptr, {0, nullptr});
  RK_CHECK(back == 0 && emulator::stats().last_device == 0, "and the device before it is current again");
  const int nowhere =
      token_logprobs(in.logits(), in.targets.data(), 1.0, kIgnore, out.data(), nullptr, nullptr, nullptr, {9, nullptr});
  RK_CHECK(nowhere != 0, "device 9");
}

}  // namespace
}  // namespace rewardkit::cuda

int main() {
  using namespace rewardkit;
  using namespace rewardkit::cuda;
  for (const std::uint32_t order : {0U, 1U, 5U}) {
    emulator::config().order = order;
    logprobs<float>(3, 1000, 0, 0);
    logprobs<float>(2, 9001, 3, 1);
    logprobs<BFloat16>(2, 8193, 0, 3);
    logprobs<BFloat16>(3, 1, 0, 1);
    logprobs<Float16>(2, 71, 2, 5);
    logprobs<BFloat16>(2, 20000, 8, 0);
    alone_or_in_company();
    odd_targets();
    updates();
    spans();
    histogram<float>(3000, 1, 15);
    histogram<double>(700, 4, 10);
    histogram<float>(600, 90, 20);  // more cells than shared memory holds
    histogram<double>(0, 2, 1);
    bags();
    other_device();
  }
  return tests::report("test_kernels");
}
