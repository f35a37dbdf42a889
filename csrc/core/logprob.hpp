// Log-probabilities of given tokens under rows of logits, without ever holding a second array of the logits' size.
//
// Kernel interface, the same for _cpu, _cuda, _emu and the twins in rewardkit/reference/logprob.py (Python names;
// pointers are integers, 0 = output not wanted; `dtype` is "float32", "bfloat16" or "float16"; strides count elements):
//
//   token_logprobs(logits, dtype, rows, vocab, row_stride, targets, temperature, ignore_index,
//                  logprob, entropy, lse, threads, device, stream) -> int
//   token_logprobs_backward(logits, dtype, rows, vocab, row_stride, targets, temperature, ignore_index,
//                           lse, entropy, grad_logprob, grad_entropy, grad_logits, grad_row_stride,
//                           threads, device, stream) -> None
//   online_softmax_update(tile, dtype, rows, columns, row_stride, first_column, targets, temperature,
//                         state_max, state_sum, state_weighted, target_logit, threads, device, stream) -> None
//   linear_token_logprobs(hidden, dtype, rows, hidden_size, hidden_stride, weight, vocab, weight_stride, targets,
//                         temperature, ignore_index, logprob, entropy, threads, device, stream) -> int
//   span_reduce(logprobs, dtype, tokens, offsets, spans, how, out, threads, device, stream) -> int
//
// docs/likelihood.md has the table with every type and the rules for rows that are no distribution.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewardkit {

enum class DType { float32, bfloat16, float16 };

struct Logits {
  const void* data;  // [rows, columns]; the last axis is dense
  DType dtype;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;  // in elements; may be negative or 0
};

// Natural log-probability of targets[i] under softmax(logits[i] / temperature), in one pass over each row.
//
// A row whose target is ignore_index is not read and gives 0 for every output. `logprob`, `entropy`, `lse` are
// float[rows]; a null pointer is an output not wanted. A row of only -inf, with a +inf or with a NaN gives NaN. Returns
// -1, or the first row whose target is neither in [0, columns) nor ignore_index; then nothing has been written.
std::int64_t token_logprobs(const Logits& logits, const std::int64_t* targets, double temperature,
                            std::int64_t ignore_index, float* logprob, float* entropy, float* lse, int threads);

// grad_logits[i][j] = (grad_logprob[i] (1[j = t_i] - p_j) - grad_entropy[i] p_j (log p_j + H_i)) / temperature, in the
// dtype of the logits; 0 for an ignored row. `lse` and `entropy` are the forward's; `grad_logprob` or both of `entropy`
// and `grad_entropy` may be null.
void token_logprobs_backward(const Logits& logits, const std::int64_t* targets, double temperature,
                             std::int64_t ignore_index, const float* lse, const float* entropy,
                             const float* grad_logprob, const float* grad_entropy, void* grad_logits,
                             std::int64_t grad_row_stride, int threads);

// Adds the tile of columns [first_column, first_column + tile.columns) of a larger [rows, V] to the running state of
// each row: state_max float[rows] (start at -inf), state_sum and state_weighted double[rows] (start at 0; weighted may
// be null: no entropy), target_logit float[rows] (after the temperature; written by the tile that holds the target, so
// start at NaN).
void online_softmax_update(const Logits& tile, std::int64_t first_column, const std::int64_t* targets,
                           double temperature, float* state_max, double* state_sum, double* state_weighted,
                           float* target_logit, int threads);

struct LinearInput {
  const void* hidden;  // [rows, hidden_size]; the last axis is dense, as is that of the weight
  const void* weight;  // [vocab, hidden_size]
  DType dtype;         // of both
  std::int64_t rows;
  std::int64_t hidden_size;
  std::int64_t vocab;
  std::int64_t hidden_stride;  // in elements; may be negative or 0, as may that of the weight
  std::int64_t weight_stride;
};

// token_logprobs of the logits hidden x weight^T, which never exist: beside a copy of at most 256 rows of hidden states
// as floats there are at most 2 KiB a row, and 480 KiB a thread. Products are summed in float32, whatever the dtype,
// and only rows whose target is not ignore_index are multiplied. No result depends on `threads`.
std::int64_t linear_token_logprobs(const LinearInput& input, const std::int64_t* targets, double temperature,
                                   std::int64_t ignore_index, float* logprob, float* entropy, int threads);

enum class SpanReduction { mean_prob, sum_log, mean_log, geo_mean, prod };

// Reduces logprobs[offsets[i] .. offsets[i + 1]) to out[i]; sums in double, log-probabilities above 0 count as 0. An
// empty span gives NaN. T is float or double. Returns -1, or the first span whose offsets decrease or leave [0,
// tokens]; then nothing has been written.
template <class T>
std::int64_t span_reduce(const T* logprobs, std::int64_t tokens, const std::int64_t* offsets, std::int64_t spans,
                         SpanReduction how, double* out, int threads);

namespace detail {

// -1, or the first row whose target is neither in [0, vocab) nor ignore_index.
std::int64_t first_invalid_target(const std::int64_t* targets, std::int64_t rows, std::int64_t vocab,
                                  std::int64_t ignore_index);

}  // namespace detail

}  // namespace rewardkit
