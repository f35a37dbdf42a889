// Kernels that are wrong on purpose, each as somebody once wrote one. CMakeLists.txt says which of the emulator, its
// poison, AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer must catch which; the two that are right
// must stay silent everywhere.
//
//   seeded_bugs NAME [ORDER]    exit code 0: nothing found
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"

namespace rewardkit::cuda {
namespace {

struct Sum {
  float value;
  __device__ Sum shuffled_down(unsigned offset) const { return {__shfl_down_sync(kFullWarp, value, offset)}; }
  __device__ static Sum merge(Sum a, Sum b) { return {a.value + b.value}; }
  __device__ static Sum empty() { return {0.0f}; }
};

__global__ void missing_barrier(float* out) {
  RK_SHARED_ARRAY(float, s, 64);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}

__global__ void static_shared_overflow(float* out) {
  RK_SHARED_ARRAY(float, s, 64);
  s[threadIdx.x + 1] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void dynamic_shared_overflow(float* out) {
  RK_DYNAMIC_SHARED(float, s);
  s[threadIdx.x] = 1.0f;
  if (threadIdx.x == 0) s[blockDim.x] = 2.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void global_read_past_end(const float* x, float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const volatile float value = x[i];  // the guard comes too late
  if (i < n) out[i] = value;
}

__global__ void misaligned_vector_load(const float* x, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
  out[threadIdx.x] = v.x + v.w;
}

__global__ void barrier_in_branches(float* out) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1.0f;
    __syncthreads();
  }
}

__global__ void return_before_barrier(float* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void full_mask_in_branch(float* out) {
  auto value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) value += __shfl_xor_sync(kFullWarp, value, 1);
  out[threadIdx.x] = value;
}

__global__ void race_between_blocks(float* out) {
  if (threadIdx.x == 0) out[0] += 1.0f;
}

__global__ void race_within_block(float* out) {
  RK_SHARED_ARRAY(int, count, 1);
  if (threadIdx.x == 0) count[0] = 0;
  __syncthreads();
  count[0] = count[0] + 1;
  __syncthreads();
  out[threadIdx.x] = static_cast<float>(count[0]);
}

__global__ void unwritten_shared(float* out) {
  RK_SHARED_ARRAY(float, s, 64);
  if (threadIdx.x < 32) s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void scratch_reused_without_barrier(float* out) {
  RK_SHARED_ARRAY(Sum, scratch, 8);
  const Sum a = block_reduce<256>(Sum{1.0f}, scratch);
  const Sum b = block_reduce<256>(Sum{2.0f}, scratch);
  if (threadIdx.x == 0) {
    out[0] = a.value;
    out[1] = b.value;
  }
}

__global__ void scratch_reused_with_barrier(float* out) {
  RK_SHARED_ARRAY(Sum, scratch, 8);
  const Sum a = block_reduce<256>(Sum{1.0f}, scratch);
  __syncthreads();
  const Sum b = block_reduce<256>(Sum{2.0f}, scratch);
  if (threadIdx.x == 0) {
    out[0] = a.value;
    out[1] = b.value;
  }
}

__global__ void warp_in_lockstep(float* out) {
  RK_SHARED_ARRAY(float, s, 32);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}

__global__ void warp_with_syncwarp(float* out) {
  RK_SHARED_ARRAY(float, s, 32);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}

__global__ void nothing(float* out) {
  out[threadIdx.x] = 0.0f;
}

__global__ void much_static_shared(float* out) {
  RK_SHARED_ARRAY(float, s, 16 * 1024);
  s[threadIdx.x] = 1.0f;
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void shuffle_from_outside_mask(float* out) {
  auto value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) {
    value = __shfl_down_sync(0x0000ffffu, value, 1);
  } else {
    value = __shfl_sync(0xffff0000u, value, 0);
  }
  out[threadIdx.x] = value;
}

__global__ void mask_beyond_block(float* out) {
  out[threadIdx.x] = __shfl_xor_sync(kFullWarp, 1.0f, 1);
}

__global__ void spin_without_end(int* flag, float* out) {
  while (atomicCAS(flag, 1, 2) == 0) {
  }
  out[threadIdx.x] = 1.0f;
}

__global__ void misaligned_checked_load(const float* x, float* out) {
  const uint4 raw = load_16_bytes(x + 4 * threadIdx.x);
  out[threadIdx.x] = static_cast<float>(raw.x);
}

__global__ void launch_from_kernel(float* out) {
  if (launch(nothing, {dim3(1), 32}, nullptr, out) != cudaSuccess) out[threadIdx.x] = std::nanf("");
}

struct Bug {
  const char* name;
  cudaError_t (*run)(std::vector<float>& out);
};

template <void (*kKernel)(float*), unsigned kGrid, unsigned kBlock, std::size_t kShared = 0>
cudaError_t plain(std::vector<float>& out) {
  return launch(kKernel, {dim3(kGrid), kBlock, kShared}, nullptr, out.data());
}

const Bug kBugs[] = {
    {"missing_barrier", plain<missing_barrier, 1, 64>},
    {"static_shared_overflow", plain<static_shared_overflow, 1, 64>},
    {"dynamic_shared_overflow", plain<dynamic_shared_overflow, 1, 64, 64 * sizeof(float)>},
    {"global_read_past_end",
     [](std::vector<float>& out) {
       const std::vector<float> x(100, 1.0f);
       return launch(global_read_past_end, {dim3(2), 64}, nullptr, x.data(), out.data(), 100);
     }},
    {"misaligned_vector_load",
     [](std::vector<float>& out) {
       const std::vector<float> x(64, 1.0f);
       return launch(misaligned_vector_load, {dim3(1), 8}, nullptr, x.data() + 1, out.data());
     }},
    {"misaligned_checked_load",
     [](std::vector<float>& out) {
       const std::vector<float> x(64, 1.0f);
       return launch(misaligned_checked_load, {dim3(1), 8}, nullptr, x.data() + 1, out.data());
     }},
    {"launch_from_kernel",
     [](std::vector<float>& out) {
       const cudaError_t error = launch(launch_from_kernel, {dim3(1), 1}, nullptr, out.data());
       return error != cudaSuccess ? error : cudaGetLastError();  // what the inner launch left behind
     }},
    {"barrier_in_branches", plain<barrier_in_branches, 1, 32>},
    {"return_before_barrier",
     [](std::vector<float>& out) { return launch(return_before_barrier, {dim3(1), 64}, nullptr, out.data(), 40); }},
    {"full_mask_in_branch", plain<full_mask_in_branch, 1, 32>},
    {"race_between_blocks", plain<race_between_blocks, 8, 32>},
    {"race_within_block", plain<race_within_block, 1, 64>},
    {"unwritten_shared", plain<unwritten_shared, 1, 64>},
    {"scratch_reused_without_barrier", plain<scratch_reused_without_barrier, 1, 256>},
    {"scratch_reused_with_barrier", plain<scratch_reused_with_barrier, 1, 256>},
    {"warp_in_lockstep", plain<warp_in_lockstep, 1, 32>},
    {"warp_with_syncwarp", plain<warp_with_syncwarp, 1, 32>},
    {"dynamic_shared_without_opt_in", plain<nothing, 1, 32, 64 * 1024>},
    {"static_shared_over_limit", plain<much_static_shared, 1, 32>},
    {"block_too_large", plain<nothing, 1, 2048>},
    {"grid_y_too_large",
     [](std::vector<float>& out) { return launch(nothing, {dim3(1, 65536), 32}, nullptr, out.data()); }},
    {"shuffle_from_outside_mask", plain<shuffle_from_outside_mask, 1, 32>},
    {"mask_beyond_block", plain<mask_beyond_block, 1, 16>},
    {"spin_without_end",
     [](std::vector<float>& out) {
       int flag = 0;
       return launch(spin_without_end, {dim3(1), 32}, nullptr, &flag, out.data());
     }},
};

}  // namespace
}  // namespace rewardkit::cuda

int main(int argc, char** argv) {
  using namespace rewardkit;
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (argc > 2) emulator::config().order = static_cast<std::uint32_t>(std::atoi(argv[2]));
  emulator::config().spin_limit = 1 << 16;
  for (const cuda::Bug& bug : cuda::kBugs) {
    if (name != bug.name) continue;
    std::vector<float> out(256, 0.0f);
    if (bug.run(out) != cudaSuccess) {
      std::printf("emulator: %s\n", emulator::last_report());
      return 3;
    }
    for (const float value : out) {
      if (std::isnan(value)) {
        std::printf("poison: a NaN in the output\n");
        return 4;
      }
    }
    std::printf("nothing found\n");
    return 0;
  }
  std::fprintf(stderr, "no bug named %s\n", argc > 1 ? argv[1] : "(none given)");
  return 2;
}
