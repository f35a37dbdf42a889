// The kernels' entry points: raw device pointers, sizes, a device and a stream; no torch, no Python and no CUDA header.
// `_cuda` has them from nvcc, `_emu` from the emulator. Each returns 0 or a cudaError_t; nothing waits for the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/logprob.hpp"

namespace rewardkit::cuda {

struct Place {
  int device;
  void* stream;  // a cudaStream_t of that device
};

// As rewardkit::token_logprobs, except that a row whose target is neither a column nor ignore_index gives NaN.
//
// A row's bits depend on the row, on its length and on its address modulo 16 alone: not on the other rows, nor on how
// many there are, nor on the device. `workspace` (device memory, see below) lets several blocks share a row when rows
// are few; without it each row has one block, and the same result.
int token_logprobs(const Logits& logits, const std::int64_t* targets, double temperature, std::int64_t ignore_index,
                   float* logprob, float* entropy, float* lse, void* workspace, Place place);
std::size_t token_logprobs_workspace(std::int64_t rows, std::int64_t columns);

int token_logprobs_backward(const Logits& logits, const std::int64_t* targets, double temperature,
                            std::int64_t ignore_index, const float* lse, const float* entropy,
                            const float* grad_logprob, const float* grad_entropy, void* grad_logits,
                            std::int64_t grad_row_stride, Place place);

int online_softmax_update(const Logits& tile, std::int64_t first_column, const std::int64_t* targets,
                          double temperature, float* state_max, double* state_sum, double* state_weighted,
                          float* target_logit, Place place);

// logprobs are float or double; a span that decreases or leaves [0, tokens] gives NaN.
int span_reduce(const void* logprobs, bool is_double, std::int64_t tokens, const std::int64_t* offsets,
                std::int64_t spans, SpanReduction how, double* out, Place place);

template <class T>
struct CalibrationArrays {
  const T* confidence;
  const std::uint8_t* correct;
  const std::int64_t* groups;  // or null: one group
  std::int64_t size;
  const T* thresholds;  // bins - 1, ascending
  int bins;
  std::int64_t n_groups;
  int fraction_bits;
};

// As rewardkit::calibration_histogram, but the outputs are written instead of added to, and `refused` [2] counts the
// rows whose group lies outside [0, n_groups), and the NaNs among the invalid. T is float or double.
template <class T>
int calibration_histogram(const CalibrationArrays<T>& in, std::int64_t* histogram, std::int64_t* squared_error,
                          std::int64_t* invalid, std::int64_t* refused, Place place);

template <class Id>
struct Bags {
  const Id* prediction_ids;
  const std::int64_t* prediction_offsets;
  const Id* reference_ids;
  const std::int64_t* reference_offsets;
  const std::int64_t* answer_rows;
  const std::int64_t* gold_rows;
  const std::int64_t* pair_rows;  // [rollouts + 1], the running sum of answers times golds
  std::int64_t rollouts;
  std::int64_t pairs;
};

// F1 of the bags of each answer and gold of a rollout, out [pairs]; offsets ascend. Id is int32_t or int64_t.
template <class Id>
int bag_f1(const Bags<Id>& bags, double* out, Place place);

// ---- What is there -------------------------------------------------------------------------------------------------

struct DeviceInfo {
  char name[256];
  int major, minor, multiprocessors;
  std::size_t memory_bytes;
};

int device_count(int& count);
int device_info(int device, DeviceInfo& info);
int runtime_version();  // of the CUDA runtime built in, as 1000 major + 10 minor; 0 for the emulator
int driver_version();   // 0 where there is no driver
const char* error_text(int error);

}  // namespace rewardkit::cuda
