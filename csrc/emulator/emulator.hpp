// Runs CUDA kernels on the CPU, for tests. Every CUDA thread is a context of its own that runs until it reaches a
// barrier, a shuffle or a vote; one operating-system thread runs them in turn, in an order that a test chooses.
//
// What it finds by itself: barriers that not all threads reach, or that different threads reach at different places;
// warp operations with lanes that have left, stand outside the mask or are not in the warp; reads of shared memory that
// nothing wrote (it is filled with NaN bytes); launches over a limit; threads that wait for one another, or spin on an
// atomic, for ever. With -fsanitize=address also reads and writes outside an array (each shared array has red zones);
// with -fsanitize=thread also races, since every CUDA thread is a thread to the sanitizer and only a launch,
// __syncthreads and __syncwarp order two of them. Nothing orders two blocks of a launch.
//
// What it cannot find: what nvcc makes of the code, rounding of the fast intrinsics, memory order weaker than
// happens-before, bank conflicts, speed. Blocks run one after the other, so a block that waits for a later one hangs on
// the emulator (and is reported), as it may on a device.
//
// Files of the emulator are compiled without -fsanitize=thread; kernels and tests with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "emulator/vector_types.hpp"

namespace rewardkit::emulator {

// How launches run. Change it between launches only.
struct Config {
  // 0: threads and blocks in ascending order; 1: descending; any other: seed of a random order of both.
  std::uint32_t order = 0;
  bool poison_shared_memory = true;
  std::size_t stack_bytes = 128 * 1024;
  int static_shared_bytes = 48 * 1024;
  int shared_bytes_opt_in = 227 * 1024;
  int devices = 2;
  // Atomics that one thread may do without reaching a barrier or the end: more is a spin that no other thread can end.
  std::uint64_t spin_limit = std::uint64_t{1} << 27;
};
Config& config();

// Counts since the start of the process.
struct Stats {
  std::uint64_t launches, blocks, threads, switches, barriers, warp_operations;
  int last_device;  // the current device at the last launch
};
const Stats& stats();

// What was wrong with the last launch that failed on this operating-system thread.
const char* last_report();

// ---- What the CUDA names in cuda_shim.hpp are made of --------------------------------------------------------------

struct ThreadIndex {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
extern const ThreadIndex* current_thread;

enum class WarpOperation : std::uint8_t { shuffle, ballot, barrier };
enum class BarrierVote : std::uint8_t { count, all, any };

int lane_index();
int block_barrier(int vote, BarrierVote kind, const char* file, int line);
std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source_lane,
                             const char* name);
void* static_shared_array(const void* site, std::size_t bytes, std::size_t alignment);
void* dynamic_shared_array();
void count_atomic();
void require_alignment(const void* address, std::size_t bytes);

// Runs body once per CUDA thread. One launch at a time: other threads of the process wait. Returns a cudaError_t.
int launch(const void* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
           const std::function<void()>& body);

}  // namespace rewardkit::emulator
