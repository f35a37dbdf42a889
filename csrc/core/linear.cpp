// linear_token_logprobs: a product of matrices that hands each block of its result to a running softmax and forgets it.
//
// Rows are taken in blocks, the vocabulary in segments, of sizes that depend on the call alone. A segment is one piece
// of work for one thread and ends in a running softmax of its own for each row; these are merged in order, so that no
// result depends on the number of threads. Within a segment, a tile of the vocabulary is packed, step by step of the
// hidden size, multiplied with every panel of rows while it lies in the cache, and then added to the softmax.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "core/cpu_features.hpp"
#include "core/linear_kernels.hpp"
#include "core/logprob.hpp"
#include "core/parallel.hpp"
#include "core/softmax.hpp"

namespace rewardkit {
namespace {

using detail::Ahead;
using detail::LinearKernels;
using detail::LinearState;

constexpr double kLog2E = 1.4426950408889634;
constexpr std::int64_t kBlockRows = 256;   // so many rows share one reading of the weights
constexpr std::int64_t kTileColumns = 96;  // a multiple of every kernel's columns
constexpr std::int64_t kStepUnits = 1024;  // a tile of so many units stays in a cache of 1 MiB
constexpr std::int64_t kMaxSegments = 64;

// Memory for floats and doubles whose vectors do not straddle cache lines; pages that are never touched cost nothing.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) : data_(::operator new(static_cast<std::size_t>(bytes), kAlignment)) {}
  ~Scratch() { ::operator delete(data_, kAlignment); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* take(std::int64_t count) {
    T* taken = reinterpret_cast<T*>(static_cast<char*>(data_) + used_);
    used_ += size_of<T>(count);
    return taken;
  }
  template <class T>
  static std::int64_t size_of(std::int64_t count) {
    return (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void* data_;
  std::int64_t used_ = 0;
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct Method {
  std::int64_t rows, columns, run;
  detail::PackWeight pack;
  detail::Dots dots;
  detail::Product product;
  detail::UpdateSoftmax update, update_with_entropy;
  std::int64_t unit;  // elements in a unit
};

Method method_for(DType dtype) {
  const LinearKernels* table = &detail::linear_portable;
  bool pairs = false;
#if defined(__x86_64__)
  switch (best_instruction_set()) {
    case InstructionSet::avx512_bf16:
      pairs = dtype == DType::bfloat16;
      [[fallthrough]];
    case InstructionSet::avx512:
      table = &detail::linear_avx512;
      break;
    case InstructionSet::avx2:
      table = &detail::linear_avx2;
      break;
    case InstructionSet::portable:
      break;
  }
#endif
  const auto kind = static_cast<std::size_t>(dtype);
  Method method{table->rows,
                table->columns,
                table->run,
                table->pack[kind],
                table->dots[kind],
                table->product,
                table->update,
                table->update_with_entropy,
                1};
#if defined(__x86_64__)
  if (pairs) {
    method.pack = detail::linear_avx512_bf16.pack;
    method.dots = detail::linear_avx512_bf16.dots;
    method.product = detail::linear_avx512_bf16.product;
    method.unit = 2;
  }
#endif
  return method;
}

// The running softmaxes of all segments: [segment][row].
struct States {
  float* reference;
  double* sum;
  double* weighted;
  std::int64_t rows;  // rounded up to whole panels

  LinearState at(std::int64_t segment, std::int64_t row) const {
    const std::int64_t place = segment * rows + row;
    return {reference + place, sum + place, weighted != nullptr ? weighted + place : nullptr};
  }
};

class Block {
 public:
  Block(const LinearInput& input, const std::int64_t* targets, const Method& method, double temperature,
        const std::int64_t* rows, std::int64_t count)
      : input_(input),
        targets_(targets),
        method_(method),
        temperature_(temperature),
        scale_(static_cast<float>(kLog2E / temperature)),
        rows_(rows),
        count_(count),
        panels_(divide_up(count, method.rows)),
        units_(divide_up(input.hidden_size, method.unit)),
        steps_(std::max<std::int64_t>(1, divide_up(units_, kStepUnits))) {}

  std::int64_t padded_rows() const { return panels_ * method_.rows; }
  std::int64_t padded_units() const { return divide_up(units_, method_.run) * method_.run; }

  // [step][panel][unit][row of the panel] or, for a few rows, [step][run][row][unit of the run]; zeros where there is
  // no row or no unit.
  void pack_hidden(float* out) const {
    std::fill(out, out + padded_rows() * padded_units(), 0.0F);
    for (std::int64_t i = 0; i < count_; ++i) {
      for (std::int64_t step = 0; step < steps_; ++step) {
        float* start = out + step * kStepUnits * padded_rows();
        const std::int64_t lane = i % method_.rows;
        if (few()) {
          pack_row(rows_[i], step, {1, few_rows() * method_.run}, start + i * method_.run);
        } else {
          pack_row(rows_[i], step, {method_.rows, method_.rows * method_.run},
                   start + (i - lane) * padded(step) + lane);
        }
      }
    }
  }

  // The columns [first, last) of the vocabulary, into the state of one segment. `weight` and `logits` are scratch of
  // kTileColumns x padded(0) and padded_rows() x kTileColumns floats.
  void run(const float* hidden, std::int64_t first, std::int64_t last, const States& states, std::int64_t segment,
           float* target_logit, float* weight, float* logits) const {
    const LinearState all = states.at(segment, 0);
    std::fill(all.reference, all.reference + states.rows, std::numeric_limits<float>::lowest());
    std::fill(all.sum, all.sum + states.rows, 0.0);
    if (all.weighted != nullptr) std::fill(all.weighted, all.weighted + states.rows, 0.0);
    std::fill(logits, logits + states.rows * kTileColumns, 0.0F);  // a kernel may leave lanes without a row alone
    const auto update = all.weighted != nullptr ? method_.update_with_entropy : method_.update;
    for (std::int64_t column = first; column < last; column += kTileColumns) {
      const std::int64_t columns = std::min(kTileColumns, last - column);
      for (std::int64_t step = 0; step < steps_; ++step) multiply(hidden, column, columns, last, step, weight, logits);
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        const std::int64_t row = panel * method_.rows;
        const float* tile = logits + row * kTileColumns;
        update(tile, columns, scale_, states.at(segment, row));
        for (std::int64_t i = row; i < std::min(count_, row + method_.rows); ++i) {
          const std::int64_t target = targets_[rows_[i]] - column;
          if (target >= 0 && target < columns) target_logit[i] = tile[target * method_.rows + i - row];
        }
      }
    }
  }

  void finish(const States& states, std::int64_t segments, const float* target_logit, float* logprob,
              float* entropy) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      float reference = std::numeric_limits<float>::lowest();
      for (std::int64_t s = 0; s < segments; ++s) reference = std::max(reference, *states.at(s, i).reference);
      double sum = 0.0, weighted = 0.0;
      for (std::int64_t s = 0; s < segments; ++s) {
        const LinearState state = states.at(s, i);
        // The logit that is the reference counts 1, so that this has seen nothing but -inf (which may count 2^-126).
        if (*state.sum < 0.5) continue;
        const double shift =
            static_cast<double>(scale_) * (static_cast<double>(*state.reference) - static_cast<double>(reference));
        const double factor = std::exp2(shift);
        sum += *state.sum * factor;
        if (state.weighted != nullptr && factor != 0.0) weighted += (*state.weighted + shift * *state.sum) * factor;
      }
      const double log_sum = sum == 0.0 ? std::numeric_limits<double>::quiet_NaN() : std::log(sum);
      if (logprob != nullptr) {
        const double above = static_cast<double>(target_logit[i]) - static_cast<double>(reference);
        const double value = above / temperature_ - log_sum;
        logprob[rows_[i]] = static_cast<float>(value > 0.0 ? 0.0 : value);
      }
      if (entropy != nullptr) {
        const double value = log_sum - weighted / kLog2E / sum;
        entropy[rows_[i]] = static_cast<float>(value < 0.0 ? 0.0 : value);
      }
    }
  }

 private:
  bool few() const { return count_ <= detail::kFewRows; }
  std::int64_t few_rows() const { return count_ <= 2 ? count_ : count_ <= 4 ? 4 : detail::kFewRows; }

  std::int64_t units_of(std::int64_t step) const { return std::min(kStepUnits, units_ - step * kStepUnits); }
  std::int64_t padded(std::int64_t step) const { return divide_up(units_of(step), method_.run) * method_.run; }

  std::int64_t element_size() const { return input_.dtype == DType::float32 ? 4 : 2; }

  const char* weight_at(std::int64_t column, std::int64_t step) const {
    const std::int64_t element = column * input_.weight_stride + step * kStepUnits * method_.unit;
    return static_cast<const char*>(input_.weight) + element * element_size();
  }

  std::int64_t elements_of(std::int64_t step) const {
    return std::min(kStepUnits * method_.unit, input_.hidden_size - step * kStepUnits * method_.unit);
  }

  // How far apart the units of a row are packed.
  struct Apart {
    std::int64_t units, runs;
  };

  void pack_row(std::int64_t row, std::int64_t step, const Apart& apart, float* out) const {
    const std::int64_t start = row * input_.hidden_stride + step * kStepUnits * method_.unit;
    const std::int64_t count = elements_of(step);
    switch (input_.dtype) {
      case DType::float32:
        return pack_elements(static_cast<const float*>(input_.hidden) + start, count, apart, out);
      case DType::float16:
        return pack_elements(static_cast<const Float16*>(input_.hidden) + start, count, apart, out);
      case DType::bfloat16:
        break;
    }
    const auto* values = static_cast<const BFloat16*>(input_.hidden) + start;
    if (method_.unit == 1) return pack_elements(values, count, apart, out);
    for (std::int64_t k = 0; k < count; k += 2) {
      const BFloat16 pair[2] = {values[k], k + 1 < count ? values[k + 1] : BFloat16{0}};
      std::memcpy(out + place(k / 2, apart), pair, sizeof pair);
    }
  }

  template <class T>
  void pack_elements(const T* values, std::int64_t count, const Apart& apart, float* out) const {
    for (std::int64_t k = 0; k < count; ++k) out[place(k, apart)] = to_float(values[k]);
  }

  std::int64_t place(std::int64_t unit, const Apart& apart) const {
    return unit / method_.run * apart.runs + unit % method_.run * apart.units;
  }

  // logits [panel][column][row of the panel] of the columns [column, column + columns), or one step's share of them.
  void multiply(const float* hidden, std::int64_t column, std::int64_t columns, std::int64_t last, std::int64_t step,
                float* weight, float* logits) const {
    const std::int64_t depth = padded(step), runs = depth / method_.run;
    if (few()) {
      method_.dots(hidden + step * kStepUnits * padded_rows(), few_rows(), weight_at(column, step),
                   input_.weight_stride, columns, elements_of(step), step == 0, logits);
      return;
    }
    method_.pack(weight_at(column, step), input_.weight_stride, columns, elements_of(step), weight);

    // What is packed next is asked for while this is multiplied, in equal shares.
    const bool same_columns = step + 1 < steps_;
    const std::int64_t next_column = same_columns ? column : column + kTileColumns;
    const std::int64_t next_step = same_columns ? step + 1 : 0;
    const std::int64_t next_columns = std::min(kTileColumns, last - next_column);
    const std::int64_t calls = panels_ * divide_up(columns, method_.columns);
    const std::int64_t share = next_columns > 0 ? divide_up(next_columns, calls) : 0;

    const float* panel = hidden + step * kStepUnits * padded_rows();
    std::int64_t asked = 0;
    for (std::int64_t row = 0; row < padded_rows(); row += method_.rows, panel += method_.rows * depth) {
      const bool narrow = count_ - row <= method_.rows / 2;
      for (std::int64_t j = 0; j < columns; j += method_.columns) {
        Ahead ahead{nullptr, 0, 0, 0, 0};
        if (asked < next_columns) {
          ahead.data = weight_at(next_column + asked, next_step);
          ahead.stride = input_.weight_stride * element_size();
          ahead.bytes = elements_of(next_step) * element_size();
          ahead.bytes_per_run = divide_up(divide_up(ahead.bytes, std::max<std::int64_t>(1, runs)), 64) * 64;
          ahead.rows = std::min(share, next_columns - asked);
          asked += share;
        }
        method_.product(panel, weight + j * depth, runs, narrow, step == 0, ahead,
                        logits + (row * kTileColumns + j * method_.rows));
      }
    }
  }

  const LinearInput& input_;
  const std::int64_t* targets_;
  const Method& method_;
  double temperature_;
  float scale_;
  const std::int64_t* rows_;
  std::int64_t count_, panels_, units_, steps_;
};

}  // namespace

std::int64_t linear_token_logprobs(const LinearInput& input, const std::int64_t* targets, double temperature,
                                   std::int64_t ignore_index, float* logprob, float* entropy, int threads) {
  const std::int64_t invalid = detail::first_invalid_target(targets, input.rows, input.vocab, ignore_index);
  if (invalid >= 0) return invalid;
  std::vector<std::int64_t> scored;
  scored.reserve(static_cast<std::size_t>(input.rows));
  for (std::int64_t i = 0; i < input.rows; ++i) {
    if (targets[i] != ignore_index) {
      scored.push_back(i);
      continue;
    }
    if (logprob != nullptr) logprob[i] = 0.0F;
    if (entropy != nullptr) entropy[i] = 0.0F;
  }
  const auto total = static_cast<std::int64_t>(scored.size());
  if (total == 0) return -1;

  const Method method = method_for(input.dtype);
  const std::int64_t width = divide_up(divide_up(input.vocab, kMaxSegments), kTileColumns) * kTileColumns;
  const std::int64_t segments = divide_up(input.vocab, width);
  const std::int64_t workers = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, segments));
  // Blocks of nearly one size: a last block of few rows would read all the weights for them alone.
  const std::int64_t blocks = divide_up(total, kBlockRows), block_rows = divide_up(total, blocks);

  const Block largest(input, targets, method, temperature, scored.data(), block_rows);
  const std::int64_t rows = largest.padded_rows(), places = segments * rows;
  const std::int64_t weight_size = kTileColumns * std::min(kStepUnits, largest.padded_units());
  const std::int64_t logits_size = kTileColumns * rows;
  Scratch scratch(Scratch::size_of<float>(rows * largest.padded_units()) + Scratch::size_of<float>(places) +
                  2 * Scratch::size_of<double>(places) + Scratch::size_of<float>(rows) +
                  workers * (Scratch::size_of<float>(weight_size) + Scratch::size_of<float>(logits_size)));
  auto* hidden = scratch.take<float>(rows * largest.padded_units());
  const States states{scratch.take<float>(places), scratch.take<double>(places),
                      entropy != nullptr ? scratch.take<double>(places) : nullptr, rows};
  auto* target_logit = scratch.take<float>(rows);
  auto* weights = scratch.take<float>(workers * weight_size);
  auto* logits = scratch.take<float>(workers * logits_size);

  for (std::int64_t first = 0; first < total; first += block_rows) {
    const Block block(input, targets, method, temperature, scored.data() + first, std::min(block_rows, total - first));
    block.pack_hidden(hidden);
    const std::int64_t cost = rows * width * std::max<std::int64_t>(1, input.hidden_size / 16);
    parallel_for_workers(segments, cost, static_cast<int>(workers), [&](std::int64_t segment, std::int64_t worker) {
      const std::int64_t start = segment * width;
      block.run(hidden, start, std::min(input.vocab, start + width), states, segment, target_logit,
                weights + worker * weight_size, logits + worker * logits_size);
    });
    block.finish(states, segments, target_logit, logprob, entropy);
  }
  return -1;
}

}  // namespace rewardkit
