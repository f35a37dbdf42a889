// The emulator does what CUDA says: barriers, shuffles of every width, votes, atomics, limits, errors, devices, and
// launches from several operating-system threads at once.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda/portable.cuh"
#include "cuda/reduce.cuh"
#include "tests/check.hpp"

namespace rewardkit::cuda {
namespace {

__global__ void rotate(const int* in, int* out, int rounds) {
  RK_DYNAMIC_SHARED(int, s);
  const unsigned n = blockDim.x;
  s[threadIdx.x] = in[blockIdx.x * n + threadIdx.x];
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int next = s[(threadIdx.x + 1) % n];
    __syncthreads();
    s[threadIdx.x] = next;
  }
  out[blockIdx.x * n + threadIdx.x] = s[threadIdx.x];
}

struct Shuffles {
  int *indexed, *down, *up, *exclusive;
};

__global__ void shuffle_all(const Shuffles out, int width) {
  const int t = static_cast<int>(threadIdx.x);
  out.indexed[t] = __shfl_sync(kFullWarp, t, 5, width);
  out.down[t] = __shfl_down_sync(kFullWarp, t, 3, width);
  out.up[t] = __shfl_up_sync(kFullWarp, t, 3, width);
  out.exclusive[t] = __shfl_xor_sync(kFullWarp, t, 1, width);
}

__global__ void votes(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const unsigned ballot = __ballot_sync(kFullWarp, t % 3 == 0);
  const int any = __any_sync(kFullWarp, t == 40), all = __all_sync(kFullWarp, t < 64);
  const int count = __syncthreads_count(t < 10), both = __syncthreads_and(t < 10), either = __syncthreads_or(t < 10);
  out[t] = static_cast<int>(ballot % 997) + any * 1000 + all * 2000 + count * 4000 + both * 1000000 + either * 2000000;
}

__global__ void half_warps(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < 16) {
    out[t] = __shfl_xor_sync(0x0000ffffU, t, 15);
  } else {
    out[t] = __shfl_xor_sync(0xffff0000U, t, 1);
  }
}

__global__ void count_all(int* total, double* sum) {
  atomicAdd(total, 1);
  atomicAdd(sum, 0.5);
}

__global__ void indices(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x + threadIdx.x] = static_cast<int>(block * 1000 + threadIdx.x);
}

void barriers() {
  for (const unsigned threads : {1U, 31U, 32U, 33U, 256U, 1024U}) {
    std::vector<int> in(3 * threads), out(in.size(), -1);
    std::iota(in.begin(), in.end(), 0);
    const int error = launch(rotate, {dim3(3), threads, threads * sizeof(int)}, nullptr, in.data(), out.data(), 5);
    RK_CHECK(error == cudaSuccess, "%u threads: %s", threads, emulator::last_report());
    bool same = true;
    for (unsigned i = 0; i < out.size(); ++i) {
      same = same && out[i] == in[i / threads * threads + (i % threads + 5) % threads];
    }
    RK_CHECK(same, "%u threads", threads);
  }
}

void shuffles() {
  for (const int width : {2, 8, 16, 32}) {
    std::vector<int> values(4 * 64, -1);
    const Shuffles out{values.data(), values.data() + 64, values.data() + 128, values.data() + 192};
    RK_CHECK(launch(shuffle_all, {dim3(1), 64}, nullptr, out, width) == cudaSuccess, "%s", emulator::last_report());
    bool same = true;
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, base = t - lane, segment = lane / width * width;
      same = same && out.indexed[t] == base + segment + 5 % width;
      same = same && out.down[t] == base + (lane + 3 < segment + width ? lane + 3 : lane);
      same = same && out.up[t] == base + (lane - 3 >= segment ? lane - 3 : lane);
      same = same && out.exclusive[t] == base + (lane ^ 1);
    }
    RK_CHECK(same, "width %d", width);
  }
  std::vector<int> out(32);
  RK_CHECK(launch(half_warps, {dim3(1), 32}, nullptr, out.data()) == cudaSuccess, "%s", emulator::last_report());
  for (int t = 0; t < 32; ++t) RK_CHECK(out[static_cast<std::size_t>(t)] == (t < 16 ? t ^ 15 : t ^ 1), "lane %d", t);
}

void vote() {
  std::vector<int> out(64);
  RK_CHECK(launch(votes, {dim3(1), 64}, nullptr, out.data()) == cudaSuccess, "%s", emulator::last_report());
  for (int t = 0; t < 64; ++t) {
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>((t / 32 * 32 + lane) % 3 == 0) << lane;
    const int expected = static_cast<int>(ballot % 997) + (t >= 32) * 1000 + 2000 + 10 * 4000 + 2000000;
    RK_CHECK(out[static_cast<std::size_t>(t)] == expected, "thread %d", t);
  }
}

void atomics_and_indices() {
  int total = 0;
  double sum = 0.0;
  RK_CHECK(launch(count_all, {dim3(7), 96}, nullptr, &total, &sum) == cudaSuccess, "%s", emulator::last_report());
  RK_CHECK(total == 7 * 96 && sum == 7 * 48.0, "total %d", total);
  std::vector<int> out(2 * 3 * 4 * 5, -1);
  RK_CHECK(launch(indices, {dim3(2, 3, 4), 5}, nullptr, out.data()) == cudaSuccess, "%s", emulator::last_report());
  for (std::size_t i = 0; i < out.size(); ++i) RK_CHECK(out[i] == static_cast<int>(i / 5 * 1000 + i % 5), "%zu", i);
}

void limits_and_errors() {
  int total = 0;
  double sum = 0.0;
  RK_CHECK(launch(count_all, {dim3(0), 32}, nullptr, &total, &sum) == cudaErrorInvalidConfiguration, "empty grid");
  RK_CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess,
           "error is cleared");
  std::vector<int> data(32);
  const LaunchShape large{dim3(1), 32, 64 * 1024};
  RK_CHECK(launch(rotate, large, nullptr, data.data(), data.data(), 1) == cudaErrorInvalidValue, "no opt-in");
  RK_CHECK(cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024) == cudaSuccess,
           "opt-in");
  RK_CHECK(launch(rotate, large, nullptr, data.data(), data.data(), 1) == cudaSuccess, "%s", emulator::last_report());
  RK_CHECK(cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) != cudaSuccess, "1 MiB");
  (void)cudaGetLastError();
  RK_CHECK(cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, 48 * 1024) == cudaSuccess,
           "reset");

  int device = -1, count = 0;
  RK_CHECK(cudaGetDeviceCount(&count) == cudaSuccess && count == 2, "devices %d", count);
  RK_CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice, "device 2");
  RK_CHECK(cudaSetDevice(1) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess && device == 1, "device 1");
  RK_CHECK(launch(count_all, {dim3(1), 1}, nullptr, &total, &sum) == cudaSuccess && emulator::stats().last_device == 1,
           "the launch goes to the current device");
  RK_CHECK(cudaSetDevice(0) == cudaSuccess, "device 0");
}

void many_threads() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&wrong, i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        std::vector<int> in(64), out(64);
        std::iota(in.begin(), in.end(), i * 100);
        const int error = launch(rotate, {dim3(1), 64, 64 * sizeof(int)}, nullptr, in.data(), out.data(), 2);
        for (std::size_t t = 0; t < 64; ++t) wrong += error != cudaSuccess || out[t] != in[(t + 2) % 64];
        int device = -1;  // each thread of the operating system has its own current device
        wrong += cudaGetDevice(&device) != cudaSuccess || device != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RK_CHECK(wrong == 0, "%d wrong", wrong.load());
}

}  // namespace
}  // namespace rewardkit::cuda

int main() {
  using namespace rewardkit;
  for (const std::uint32_t order : {0U, 1U, 2U, 3U}) {
    emulator::config().order = order;
    cuda::barriers();
    cuda::shuffles();
    cuda::vote();
    cuda::atomics_and_indices();
    cuda::limits_and_errors();
  }
  cuda::many_threads();
  return tests::report("test_emulator");
}
