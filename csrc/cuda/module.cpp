// The Python module of the CUDA kernels, built twice: `_cuda` on nvcc's objects, `_emu` on the emulator. Pointers and
// the stream travel as integers, so that neither torch's nor CUDA's headers are needed here.
#include "cuda/module.hpp"

#include <pybind11/pybind11.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/logprob.hpp"
#include "cuda/launchers.hpp"

namespace py = pybind11;

namespace rewardkit::cuda {

// Kernels that nvcc built return an error; callers of Python get a BackendError with the kernel's name.
void check(int error, const char* kernel, const Place& place) {
  if (error == 0) return;
  std::string text = std::string(kernel) + ": " + kBackendName + " error " + std::to_string(error) + " (" +
                     error_text(error) + ") on device " + std::to_string(place.device);
  if (driver_version() == 0 && !kEmulated) text += "; no CUDA driver is loaded on this machine";
  py::set_error(py::module_::import("rewardkit.errors").attr("BackendError"), text.c_str());
  throw py::error_already_set();
}

namespace {

using Address = std::uintptr_t;

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

Logits logits_at(Address data, std::string_view dtype, std::int64_t rows, std::int64_t columns,
                 std::int64_t row_stride) {
  require(rows >= 0 && columns >= 0, "rows, columns: expected sizes of at least 0");
  require(data != 0 || rows == 0 || columns == 0, "logits: null pointer");
  return {at<const void>(data), dtype_named(dtype), rows, columns, row_stride};
}

void require_temperature(double temperature) {
  require(std::isfinite(temperature) && temperature > 0.0, "temperature: expected a finite number above 0");
}

void bind_logprob(py::module_& module) {
  module.def(
      "token_logprobs",
      [](Address logits, std::string_view dtype, std::int64_t rows, std::int64_t vocab, std::int64_t row_stride,
         Address targets, double temperature, std::int64_t ignore_index, Address logprob, Address entropy, Address lse,
         int, int device, Address stream, Address workspace) {
        const Logits input = logits_at(logits, dtype, rows, vocab, row_stride);
        require_temperature(temperature);
        require(targets != 0 || rows == 0, "targets: null pointer");
        const Workspace scratch(workspace, token_logprobs_workspace(rows, vocab));
        run("token_logprobs", place_of(device, stream), [&](Place place) {
          return token_logprobs(input, at<const std::int64_t>(targets), temperature, ignore_index, at<float>(logprob),
                                at<float>(entropy), at<float>(lse), scratch.data(), place);
        });
        return -1;
      },
      py::arg("logits"), py::arg("dtype"), py::arg("rows"), py::arg("vocab"), py::arg("row_stride"), py::arg("targets"),
      py::arg("temperature"), py::arg("ignore_index"), py::arg("logprob"), py::arg("entropy"), py::arg("lse"),
      py::arg("threads"), py::arg("device"), py::arg("stream"), py::arg("workspace") = Address{0},
      "Log-probability (and entropy, log-sum-exp) of each row's target; -1. A row with an invalid target gives NaN.");

  module.def("token_logprobs_workspace", &token_logprobs_workspace, py::arg("rows"), py::arg("vocab"),
             "Bytes of device memory with which token_logprobs lets several blocks share a row; 0 when it needs none.");

  module.def(
      "token_logprobs_backward",
      [](Address logits, std::string_view dtype, std::int64_t rows, std::int64_t vocab, std::int64_t row_stride,
         Address targets, double temperature, std::int64_t ignore_index, Address lse, Address entropy,
         Address grad_logprob, Address grad_entropy, Address grad_logits, std::int64_t grad_row_stride, int, int device,
         Address stream) {
        const Logits input = logits_at(logits, dtype, rows, vocab, row_stride);
        require_temperature(temperature);
        require((targets != 0 && lse != 0 && grad_logits != 0) || rows == 0 || vocab == 0,
                "targets, lse, grad_logits: null pointer");
        require(grad_entropy == 0 || entropy != 0, "entropy: needed for the gradient of the entropy");
        run("token_logprobs_backward", place_of(device, stream), [&](Place place) {
          return token_logprobs_backward(input, at<const std::int64_t>(targets), temperature, ignore_index,
                                         at<const float>(lse), at<const float>(entropy), at<const float>(grad_logprob),
                                         at<const float>(grad_entropy), at<void>(grad_logits), grad_row_stride, place);
        });
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
         Address state_weighted, Address target_logit, int, int device, Address stream) {
        const Logits input = logits_at(tile, dtype, rows, columns, row_stride);
        require_temperature(temperature);
        require((targets != 0 && state_max != 0 && state_sum != 0 && target_logit != 0) || rows == 0,
                "targets, state_max, state_sum, target_logit: null pointer");
        run("online_softmax_update", place_of(device, stream), [&](Place place) {
          return online_softmax_update(input, first_column, at<const std::int64_t>(targets), temperature,
                                       at<float>(state_max), at<double>(state_sum), at<double>(state_weighted),
                                       at<float>(target_logit), place);
        });
      },
      py::arg("tile"), py::arg("dtype"), py::arg("rows"), py::arg("columns"), py::arg("row_stride"),
      py::arg("first_column"), py::arg("targets"), py::arg("temperature"), py::arg("state_max"), py::arg("state_sum"),
      py::arg("state_weighted"), py::arg("target_logit"), py::arg("threads"), py::arg("device"), py::arg("stream"),
      "Adds a tile of columns to each row's running softmax.");

  module.def(
      "span_reduce",
      [](Address logprobs, std::string_view dtype, std::int64_t tokens, Address offsets, std::int64_t spans,
         std::string_view how, Address out, int, int device, Address stream) {
        const SpanReduction reduction = reduction_named(how);
        require(dtype == "float32" || dtype == "float64", "dtype: expected float32 or float64");
        require(tokens >= 0 && spans >= 0, "tokens, spans: expected sizes of at least 0");
        require((offsets != 0 && out != 0) || spans == 0, "offsets, out: null pointer");
        require(logprobs != 0 || tokens == 0, "logprobs: null pointer");
        const bool is_double = dtype == "float64";
        run("span_reduce", place_of(device, stream), [&](Place place) {
          return span_reduce(at<const void>(logprobs), is_double, tokens, at<const std::int64_t>(offsets), spans,
                             reduction, at<double>(out), place);
        });
        return -1;
      },
      py::arg("logprobs"), py::arg("dtype"), py::arg("tokens"), py::arg("offsets"), py::arg("spans"), py::arg("how"),
      py::arg("out"), py::arg("threads"), py::arg("device"), py::arg("stream"),
      "One number per span of log-probabilities; -1. An empty or invalid span gives NaN.");
}

py::dict cuda_info() {
  py::dict info;
  info["architectures"] = RK_CUDA_ARCHITECTURES;
  info["runtime"] = runtime_version();
  info["driver"] = driver_version();
  int count = 0;
  const int error = device_count(count);
  if (error == 0) {
    info["reason"] = py::none();
  } else {  // without a driver, the runtime says that the driver is too old
    info["reason"] = info["driver"].cast<int>() == 0 ? "no CUDA driver is loaded on this machine" : error_text(error);
  }
  py::list devices;
  for (int i = 0; i < count; ++i) {
    DeviceInfo device{};
    if (device_info(i, device) != 0) continue;
    py::dict entry;
    entry["name"] = static_cast<const char*>(device.name);
    entry["compute_capability"] = std::to_string(device.major) + "." + std::to_string(device.minor);
    entry["multiprocessors"] = device.multiprocessors;
    entry["memory_gib"] = static_cast<double>(device.memory_bytes >> 20) / 1024.0;
    devices.append(entry);
  }
  info["devices"] = devices;
  return info;
}

}  // namespace
}  // namespace rewardkit::cuda

PYBIND11_MODULE(RK_MODULE_NAME, module) {
  module.doc() = "rewardkit's kernels for CUDA devices; call them through rewardkit, which checks the arguments.";
  rewardkit::cuda::bind_logprob(module);
  rewardkit::cuda::bind_arrays(module);
  rewardkit::cuda::bind_emulator(module);
  module.def("cuda_info", &rewardkit::cuda::cuda_info,
             "Architectures built in, versions of runtime and driver, devices, and the reason when there are none.");
}
