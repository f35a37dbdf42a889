// Reductions over a warp and over a block, in a fixed order: the same bits on every run.
#pragma once

#include "cuda/portable.cuh"

namespace rewardkit::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr int kWarpSize = 32;

// A value to reduce says how it is fetched from the lane `offset` above, and how two are merged:
//   struct State { State shuffled_down(unsigned offset) const; static State merge(State, State); static State empty();
//   }
template <class State>
__device__ __forceinline__ State warp_reduce(State state) {
#pragma unroll
  for (unsigned offset = kWarpSize / 2; offset > 0; offset /= 2) {
    state = State::merge(state, state.shuffled_down(offset));
  }
  return state;  // whole in lane 0
}

// For blocks of kThreads threads, a multiple of the warp. `scratch` is shared memory for one State per warp; a second
// use of the same scratch needs a barrier in between.
template <int kThreads, class State>
__device__ __forceinline__ State block_reduce(State state, State* scratch) {
  constexpr int kWarps = kThreads / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  state = warp_reduce(state);
  if (lane == 0) scratch[warp] = state;
  __syncthreads();
  if (warp == 0) {
    state = lane < kWarps ? scratch[lane] : State::empty();
    state = warp_reduce(state);
  }
  return state;  // whole in thread 0
}

}  // namespace rewardkit::cuda
