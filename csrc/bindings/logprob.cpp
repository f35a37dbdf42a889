#include "core/logprob.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/module.hpp"

namespace py = pybind11;

namespace rewardkit::bindings {
namespace {

using Address = std::uintptr_t;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

DType dtype_named(std::string_view name) {
  if (name == "float32") return DType::float32;
  if (name == "bfloat16") return DType::bfloat16;
  if (name == "float16") return DType::float16;
  throw py::value_error("dtype: expected float32, bfloat16 or float16, got " + std::string(name));
}

SpanReduction reduction_named(std::string_view name) {
  if (name == "mean_prob") return SpanReduction::mean_prob;
  if (name == "sum_log") return SpanReduction::sum_log;
  if (name == "mean_log") return SpanReduction::mean_log;
  if (name == "geo_mean") return SpanReduction::geo_mean;
  if (name == "prod") return SpanReduction::prod;
  throw py::value_error("how: expected mean_prob, sum_log, mean_log, geo_mean or prod, got " + std::string(name));
}

void require(bool condition, const char* message) {
  if (!condition) throw py::value_error(message);
}

Logits logits_at(Address data, std::string_view dtype, std::int64_t rows, std::int64_t columns,
                 std::int64_t row_stride) {
  require(rows >= 0 && columns >= 0, "rows, columns: expected sizes of at least 0");
  require(data != 0 || rows == 0 || columns == 0, "logits: null pointer");
  return {at<const void>(data), dtype_named(dtype), rows, columns, row_stride};
}

void require_temperature(double temperature) {
  require(std::isfinite(temperature) && temperature > 0.0, "temperature: expected a finite number above 0");
}

}  // namespace

void bind_logprob(py::module_& module) {
  module.def(
      "token_logprobs",
      [](Address logits, std::string_view dtype, std::int64_t rows, std::int64_t vocab, std::int64_t row_stride,
         Address targets, double temperature, std::int64_t ignore_index, Address logprob, Address entropy, Address lse,
         int threads, int, std::int64_t) {
        const Logits input = logits_at(logits, dtype, rows, vocab, row_stride);
        require_temperature(temperature);
        require(targets != 0 || rows == 0, "targets: null pointer");
        py::gil_scoped_release release;
        return token_logprobs(input, at<const std::int64_t>(targets), temperature, ignore_index, at<float>(logprob),
                              at<float>(entropy), at<float>(lse), threads);
      },
      py::arg("logits"), py::arg("dtype"), py::arg("rows"), py::arg("vocab"), py::arg("row_stride"), py::arg("targets"),
      py::arg("temperature"), py::arg("ignore_index"), py::arg("logprob"), py::arg("entropy"), py::arg("lse"),
      py::arg("threads"), py::arg("device"), py::arg("stream"),
      "Log-probability (and entropy, log-sum-exp) of each row's target; -1, or the first row with an invalid target.");

  module.def(
      "token_logprobs_backward",
      [](Address logits, std::string_view dtype, std::int64_t rows, std::int64_t vocab, std::int64_t row_stride,
         Address targets, double temperature, std::int64_t ignore_index, Address lse, Address entropy,
         Address grad_logprob, Address grad_entropy, Address grad_logits, std::int64_t grad_row_stride, int threads,
         int, std::int64_t) {
        const Logits input = logits_at(logits, dtype, rows, vocab, row_stride);
        require_temperature(temperature);
        require((targets != 0 && lse != 0 && grad_logits != 0) || rows == 0 || vocab == 0,
                "targets, lse, grad_logits: null pointer");
        require(grad_entropy == 0 || entropy != 0, "entropy: needed for the gradient of the entropy");
        py::gil_scoped_release release;
        token_logprobs_backward(input, at<const std::int64_t>(targets), temperature, ignore_index, at<const float>(lse),
                                at<const float>(entropy), at<const float>(grad_logprob), at<const float>(grad_entropy),
                                at<void>(grad_logits), grad_row_stride, threads);
      },
      py::arg("logits"), py::arg("dtype"), py::arg("rows"), py::arg("vocab"), py::arg("row_stride"), py::arg("targets"),
      py::arg("temperature"), py::arg("ignore_index"), py::arg("lse"), py::arg("entropy"), py::arg("grad_logprob"),
      py::arg("grad_entropy"), py::arg("grad_logits"), py::arg("grad_row_stride"), py::arg("threads"),
      py::arg("device"), py::arg("stream"),
      "Gradient of the log-probabilities and entropies with respect to the logits, in their dtype.");

  module.def(
      "online_softmax_update",
      [](Address tile, std::string_view dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
         std::int64_t first_column, Address targets, double temperature, Address state_max, Address state_sum,
         Address state_weighted, Address target_logit, int threads, int, std::int64_t) {
        const Logits input = logits_at(tile, dtype, rows, columns, row_stride);
        require_temperature(temperature);
        require((targets != 0 && state_max != 0 && state_sum != 0 && target_logit != 0) || rows == 0,
                "targets, state_max, state_sum, target_logit: null pointer");
        py::gil_scoped_release release;
        online_softmax_update(input, first_column, at<const std::int64_t>(targets), temperature, at<float>(state_max),
                              at<double>(state_sum), at<double>(state_weighted), at<float>(target_logit), threads);
      },
      py::arg("tile"), py::arg("dtype"), py::arg("rows"), py::arg("columns"), py::arg("row_stride"),
      py::arg("first_column"), py::arg("targets"), py::arg("temperature"), py::arg("state_max"), py::arg("state_sum"),
      py::arg("state_weighted"), py::arg("target_logit"), py::arg("threads"), py::arg("device"), py::arg("stream"),
      "Adds a tile of columns to each row's running softmax.");

  module.def(
      "linear_token_logprobs",
      [](Address hidden, std::string_view dtype, std::int64_t rows, std::int64_t hidden_size,
         std::int64_t hidden_stride, Address weight, std::int64_t vocab, std::int64_t weight_stride, Address targets,
         double temperature, std::int64_t ignore_index, Address logprob, Address entropy, int threads, int,
         std::int64_t) {
        require(rows >= 0 && hidden_size >= 0 && vocab >= 0, "rows, hidden_size, vocab: expected sizes of at least 0");
        require(hidden != 0 || rows == 0 || hidden_size == 0, "hidden: null pointer");
        require(weight != 0 || vocab == 0 || hidden_size == 0, "weight: null pointer");
        require(targets != 0 || rows == 0, "targets: null pointer");
        require_temperature(temperature);
        const LinearInput input{
            at<const void>(hidden), at<const void>(weight), dtype_named(dtype), rows, hidden_size, vocab,
            hidden_stride,          weight_stride};
        py::gil_scoped_release release;
        return linear_token_logprobs(input, at<const std::int64_t>(targets), temperature, ignore_index,
                                     at<float>(logprob), at<float>(entropy), threads);
      },
      py::arg("hidden"), py::arg("dtype"), py::arg("rows"), py::arg("hidden_size"), py::arg("hidden_stride"),
      py::arg("weight"), py::arg("vocab"), py::arg("weight_stride"), py::arg("targets"), py::arg("temperature"),
      py::arg("ignore_index"), py::arg("logprob"), py::arg("entropy"), py::arg("threads"), py::arg("device"),
      py::arg("stream"),
      "Log-probability (and entropy) of each row's target from hidden states; -1, or the first row with an invalid "
      "target.");

  module.def(
      "span_reduce",
      [](Address logprobs, std::string_view dtype, std::int64_t tokens, Address offsets, std::int64_t spans,
         std::string_view how, Address out, int threads, int, std::int64_t) {
        const SpanReduction reduction = reduction_named(how);
        require(dtype == "float32" || dtype == "float64", "dtype: expected float32 or float64");
        require(tokens >= 0 && spans >= 0, "tokens, spans: expected sizes of at least 0");
        require((offsets != 0 && out != 0) || spans == 0, "offsets, out: null pointer");
        require(logprobs != 0 || tokens == 0, "logprobs: null pointer");
        const auto* bounds = at<const std::int64_t>(offsets);
        auto* results = at<double>(out);
        py::gil_scoped_release release;
        return dtype == "float32"
                   ? span_reduce(at<const float>(logprobs), tokens, bounds, spans, reduction, results, threads)
                   : span_reduce(at<const double>(logprobs), tokens, bounds, spans, reduction, results, threads);
      },
      py::arg("logprobs"), py::arg("dtype"), py::arg("tokens"), py::arg("offsets"), py::arg("spans"), py::arg("how"),
      py::arg("out"), py::arg("threads"), py::arg("device"), py::arg("stream"),
      "One number per span of log-probabilities; -1, or the first span with invalid offsets.");
}

}  // namespace rewardkit::bindings
