#include "emulator/emulator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "emulator/context.hpp"
#include "emulator/cuda_shim.hpp"

#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif
#if defined(RK_EMULATOR_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace rewardkit::emulator {

const ThreadIndex* current_thread = nullptr;

namespace {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr std::size_t kRedZone = 32;
constexpr std::size_t kGuardPage = 4096;

Stats g_stats{};
std::mutex g_launch_mutex;  // guards everything below that is not thread_local
std::map<const void*, int> g_dynamic_limits;

// The runtime's error and device belong to the operating-system thread, as CUDA's do.
thread_local std::string t_report;
thread_local cudaError_t t_last_error = cudaSuccess;
thread_local int t_device = 0;
thread_local bool t_launching = false;

enum class State : std::uint8_t { ready, at_barrier, at_warp_operation, done };

struct CudaThread : ThreadIndex {
  Context context;
  State state;
  int linear;

  const char* file;  // where it waits
  int line;
  BarrierVote barrier_kind;
  int barrier_vote, barrier_result;

  WarpOperation operation;
  unsigned mask;
  int source_lane;
  std::uint64_t value, result;

  std::uint64_t atomics;  // since it last waited
  unsigned barrier_phase, warp_phase;
};

// The shared memory of the block that runs: dynamic first, then the static arrays in the order of first use.
class SharedMemory {
 public:
  void open(std::size_t dynamic_bytes);
  void close();
  void* dynamic() const { return arena_; }
  void* array(const void* site, std::size_t bytes, std::size_t alignment, const char*& problem);

  // Addresses that stand for events of this block in ThreadSanitizer's eyes; no kernel can reach them. Two per barrier,
  // by parity, so that a thread on its way to barrier k + 1 is not ordered before one that is late to leave barrier k.
  char* barrier_tag(unsigned phase) const { return tags() + (phase & 1) * 8; }
  char* warp_tag(int warp, unsigned phase) const { return tags() + 64 + warp * 16 + (phase & 1) * 8; }
  char* begin_tag() const { return tags() + 32; }
  char* end_tag() const { return tags() + 40; }

 private:
  static constexpr std::size_t kTagBytes = 1024;
  char* tags() const { return arena_ + capacity_ - kTagBytes; }

  struct Array {
    const void* site;
    void* address;
  };
  char* arena_ = nullptr;
  std::size_t capacity_ = 0, used_ = 0, dynamic_ = 0, static_ = 0;
  std::array<Array, 64> arrays_{};  // no heap while a CUDA thread runs
  std::size_t count_ = 0;
};

void SharedMemory::open(std::size_t dynamic_bytes) {
  const auto limit = static_cast<std::size_t>(config().shared_bytes_opt_in);
  std::size_t dirty = used_;
  // A fresh arena per block under a sanitizer, so that it sees two blocks' shared memories as different memory.
  if (arena_ == nullptr) {
    capacity_ = (limit + arrays_.size() * (kRedZone + 16) + kTagBytes + 63) & ~std::size_t{63};
    arena_ = static_cast<char*>(std::aligned_alloc(64, capacity_));
    if (arena_ == nullptr) std::abort();
    dirty = capacity_;
  }
  std::memset(arena_, config().poison_shared_memory ? 0xff : 0, dirty);
  dynamic_ = dynamic_bytes;
  static_ = 0;
  count_ = 0;
  used_ = (dynamic_bytes + kRedZone + 15) & ~std::size_t{15};
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __asan_poison_memory_region(arena_, capacity_);
  __asan_unpoison_memory_region(arena_, dynamic_bytes);
#endif
}

void* SharedMemory::array(const void* site, std::size_t bytes, std::size_t alignment, const char*& problem) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (arrays_[i].site == site) return arrays_[i].address;
  }
  const std::size_t align = std::max<std::size_t>(alignment, 16);
  const std::size_t offset = (used_ + align - 1) / align * align;
  static_ += bytes;
  if (count_ == arrays_.size()) {
    problem = "more shared arrays in one kernel than the emulator holds";
  } else if (static_ > static_cast<std::size_t>(config().static_shared_bytes)) {
    problem = "static shared memory over the limit";
  } else if (dynamic_ + static_ > static_cast<std::size_t>(config().shared_bytes_opt_in)) {
    problem = "dynamic and static shared memory together over the device's limit";
  }
  if (problem != nullptr) return arena_;
  void* const address = arena_ + offset;
  used_ = offset + bytes + kRedZone;
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(address, bytes);
#endif
  arrays_[count_++] = {site, address};
  return address;
}

void SharedMemory::close() {
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(arena_, capacity_);
#endif
#if defined(RK_EMULATOR_ADDRESS_SANITIZER) || defined(RK_EMULATOR_THREAD_SANITIZER)
  std::free(arena_);
  arena_ = nullptr;
#endif
}

class Stacks {
 public:
  char* at(std::size_t index) {
    if (size_ != config().stack_bytes) {
      for (char* stack : stacks_) munmap(stack - kGuardPage, size_ + kGuardPage);
      stacks_.clear();
      size_ = config().stack_bytes;
    }
    while (stacks_.size() <= index) {
      void* memory =
          mmap(nullptr, size_ + kGuardPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED || mprotect(memory, kGuardPage, PROT_NONE) != 0) {
        std::fputs("rewardkit emulator: no memory for stacks\n", stderr);
        std::abort();
      }
      stacks_.push_back(static_cast<char*>(memory) + kGuardPage);
    }
    return stacks_[index];
  }
  std::size_t size() const { return size_; }

 private:
  std::vector<char*> stacks_;
  std::size_t size_ = 0;
};

class Block {
 public:
  void run(uint3 index, dim3 grid, dim3 block, std::size_t dynamic_bytes, const std::function<void()>& body);
  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  void seed(std::uint32_t value) { random_.seed(value); }
  std::minstd_rand& random() { return random_; }

  void wait();           // called by the CUDA thread that runs: back to the scheduler
  void finish_thread();  // the same, for good

  CudaThread* running = nullptr;
  SharedMemory shared;
  Context scheduler;
  const std::function<void()>* body = nullptr;

 private:
  void resume(CudaThread& thread);
  bool release_warp(int warp);
  bool release_barrier();
  void report_deadlock();
  std::string place(const CudaThread& thread) const;

  std::vector<CudaThread> threads_;
  std::vector<int> order_;
  int live_ = 0;
  Stacks stacks_;
  std::string problem_;
  std::minstd_rand random_;
};

Block& block_state() {
  static Block* block = new Block;  // never destroyed: stacks may hold frames of abandoned CUDA threads
  return *block;
}

#if defined(RK_EMULATOR_THREAD_SANITIZER)
char g_launch_tag, g_exit_tag;

// Making a fiber takes a millisecond, so they are reused; rotated from block to block, so that equal threads of two
// blocks are different threads to the sanitizer. A fiber keeps its stack: on another's it would seem to race with it.
std::size_t rotated_slot(std::size_t index, std::size_t threads) {
  return (index + g_stats.blocks * 7) % (threads + 37);
}

void* pooled_fiber(std::size_t slot) {
  static std::vector<void*> pool;
  while (pool.size() <= slot) pool.push_back(__tsan_create_fiber(0));
  return pool[slot];
}

// The memory is freed by a fiber that has seen all threads of the block end. If the scheduler's fiber did it, the next
// block would be ordered after this one and races between them would stay unseen.
void close_unordered(Block& block) {
  static void* janitor = __tsan_create_fiber(0);
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(janitor, __tsan_switch_to_fiber_no_sync);
  __tsan_acquire(block.shared.end_tag());
  block.shared.close();
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
}
#endif

void thread_entry() {
  Block& block = block_state();
  Context::started(block.scheduler);
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_acquire(&g_launch_tag);
  __tsan_acquire(block.shared.begin_tag());
#endif
  (*block.body)();
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_release(&g_exit_tag);
  __tsan_release(block.shared.end_tag());
#endif
  block.finish_thread();
  std::abort();
}

void Block::wait() {
  ++g_stats.switches;
  running->atomics = 0;
  Context::switch_to(running->context, scheduler, false);
}

void Block::finish_thread() {
  ++g_stats.switches;
  running->state = State::done;
  --live_;
  Context::switch_to(running->context, scheduler, true);
}

void Block::resume(CudaThread& thread) {
  running = &thread;
  current_thread = &thread;
  Context::switch_to(scheduler, thread.context, false);
  running = nullptr;
  current_thread = nullptr;
}

std::string Block::place(const CudaThread& t) const {
  char text[512];
  std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u) at %s:%d", t.thread.x, t.thread.y,
                t.thread.z, t.block.x, t.block.y, t.block.z, t.file, t.line);
  return text;
}

// Once all lanes of a mask have posted the same operation with the same mask, every lane gets its result.
bool Block::release_warp(int warp) {
  const int base = warp * kWarp;
  const int lanes = std::min(kWarp, static_cast<int>(threads_.size()) - base);
  auto lane = [&](int i) -> CudaThread& { return threads_[static_cast<std::size_t>(base + i)]; };
  for (int i = 0; i < lanes; ++i) {
    CudaThread& first = lane(i);
    if (first.state != State::at_warp_operation) continue;
    const unsigned mask = first.mask;
    if ((mask >> i & 1u) == 0) return fail("a lane outside its own mask: " + place(first)), false;
    bool complete = true;
    for (int j = 0; j < kWarp; ++j) {
      if ((mask >> j & 1u) == 0) continue;
      if (j >= lanes) return fail("the mask names a lane beyond the block: " + place(first)), false;
      const CudaThread& other = lane(j);
      if (other.state == State::done) return fail("the mask names a lane that has left: " + place(first)), false;
      complete = complete && other.state == State::at_warp_operation && other.mask == mask &&
                 other.operation == first.operation;
    }
    if (!complete) continue;

    unsigned ballot = 0;
    for (int j = 0; j < lanes; ++j) {
      if (mask >> j & 1u) ballot |= static_cast<unsigned>(lane(j).value & 1u) << j;
    }
    for (int j = 0; j < lanes; ++j) {
      if ((mask >> j & 1u) == 0) continue;
      CudaThread& other = lane(j);
      if (other.operation == WarpOperation::shuffle) {
        if (other.source_lane < 0 || other.source_lane >= kWarp || (mask >> other.source_lane & 1u) == 0) {
          return fail("a shuffle reads a lane outside the mask: " + place(other)), false;
        }
        other.result = lane(other.source_lane).value;
      } else {
        other.result = ballot;
      }
    }
    for (int j = 0; j < lanes; ++j) {
      if (mask >> j & 1u) lane(j).state = State::ready;
    }
    ++g_stats.warp_operations;
    return true;
  }
  return false;
}

bool Block::release_barrier() {
  const CudaThread* first = nullptr;
  int waiting = 0, votes = 0;
  for (const CudaThread& thread : threads_) {
    if (thread.state != State::at_barrier) continue;
    ++waiting;
    votes += thread.barrier_vote != 0;
    if (first == nullptr) {
      first = &thread;
    } else if (thread.line != first->line || std::strcmp(thread.file, first->file) != 0) {
      return fail("__syncthreads in branches that differ: " + place(*first) + ", but " + place(thread)), false;
    }
  }
  if (waiting == 0 || waiting != live_) return false;
  if (live_ != static_cast<int>(threads_.size())) {
    return fail("__syncthreads after part of the block has left: " + place(*first)), false;
  }
  for (CudaThread& thread : threads_) {
    switch (thread.barrier_kind) {
      case BarrierVote::count:
        thread.barrier_result = votes;
        break;
      case BarrierVote::all:
        thread.barrier_result = votes == waiting;
        break;
      case BarrierVote::any:
        thread.barrier_result = votes > 0;
        break;
    }
    thread.state = State::ready;
  }
  ++g_stats.barriers;
  return true;
}

void Block::report_deadlock() {
  std::string text = std::to_string(live_);
  text += " threads wait for one another:";
  int shown = 0;
  for (const CudaThread& thread : threads_) {
    if (thread.state == State::done || ++shown > 3) continue;
    text += ' ';
    text += place(thread);
  }
  fail(std::move(text));
}

void Block::run(uint3 index, dim3 grid, dim3 block, std::size_t dynamic_bytes, const std::function<void()>& kernel) {
  const std::size_t count = std::size_t{block.x} * block.y * block.z;
  if (threads_.size() != count) threads_ = std::vector<CudaThread>(count);
  body = &kernel;
  live_ = static_cast<int>(count);
  problem_.clear();
  shared.open(dynamic_bytes);
  scheduler.adopt_current();
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_release(shared.begin_tag());
#endif
  order_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    CudaThread& thread = threads_[i];
    const auto n = static_cast<unsigned>(i);
    thread.thread = {n % block.x, n / block.x % block.y, n / (block.x * block.y)};
    thread.block = index;
    thread.block_size = block;
    thread.grid_size = grid;
    thread.state = State::ready;
    thread.linear = static_cast<int>(i);
    thread.atomics = 0;
    thread.barrier_phase = thread.warp_phase = 0;
    std::size_t slot = i;
#if defined(RK_EMULATOR_THREAD_SANITIZER)
    slot = rotated_slot(i, count);
    thread.context.thread_sanitizer_fiber = pooled_fiber(slot);
#endif
    char* const stack = stacks_.at(slot);
    thread.context.prepare(stack, stacks_.size(), &thread_entry);
    order_[i] = static_cast<int>(i);
  }
  const bool shuffled = config().order >= 2;
  if (config().order == 1) std::reverse(order_.begin(), order_.end());

  while (live_ > 0 && !failed()) {
    if (shuffled) std::shuffle(order_.begin(), order_.end(), random_);
    bool progress = false;
    for (int i : order_) {
      CudaThread& thread = threads_[static_cast<std::size_t>(i)];
      if (thread.state != State::ready) continue;
      progress = true;
      resume(thread);
      if (failed()) break;
    }
    if (failed() || live_ == 0) break;
    bool released = false;
    for (int warp = 0; warp * kWarp < static_cast<int>(count); ++warp) {
      while (release_warp(warp)) released = true;
    }
    if (failed()) break;
    if (!released) released = release_barrier();
    if (!released && !progress && !failed()) report_deadlock();
  }

#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  for (std::size_t i = 0; i < count; ++i) __asan_unpoison_memory_region(stacks_.at(i), stacks_.size());
#endif
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  close_unordered(*this);
#else
  shared.close();
#endif
  ++g_stats.blocks;
  g_stats.threads += count;
}

// Called on a CUDA thread, which does not come back: nothing on its stack may own memory.
void give_up(Block& block, const char* problem) {
  block.fail(problem);
  block.wait();
}

cudaError_t launch_locked(const void* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          const std::function<void()>& body);

cudaError_t error(cudaError_t code, std::string report) {
  t_report = std::move(report);
  t_last_error = code;
  return code;
}

}  // namespace

Config& config() {
  static Config config;
  return config;
}

const Stats& stats() {
  return g_stats;
}

const char* last_report() {
  return t_report.c_str();
}

int lane_index() {
  return block_state().running->linear % kWarp;
}

int block_barrier(int vote, BarrierVote kind, const char* file, int line) {
  Block& block = block_state();
  CudaThread& self = *block.running;
  self.file = file;
  self.line = line;
  self.barrier_vote = vote;
  self.barrier_kind = kind;
  self.state = State::at_barrier;
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  char* const tag = block.shared.barrier_tag(self.barrier_phase++);
  __tsan_release(tag);
#endif
  block.wait();
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_acquire(tag);
#endif
  return self.barrier_result;
}

std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value, int source_lane,
                             const char* name) {
  Block& block = block_state();
  CudaThread& self = *block.running;
  self.file = name;
  self.line = 0;
  self.operation = operation;
  self.mask = mask;
  self.value = value;
  self.source_lane = source_lane;
  self.state = State::at_warp_operation;
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  // Of the warp operations only __syncwarp orders memory.
  const bool orders = operation == WarpOperation::barrier;
  char* const tag = orders ? block.shared.warp_tag(self.linear / kWarp, self.warp_phase++) : nullptr;
  if (orders) __tsan_release(tag);
#endif
  block.wait();
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  if (orders) __tsan_acquire(tag);
#endif
  return self.result;
}

void* static_shared_array(const void* site, std::size_t bytes, std::size_t alignment) {
  Block& block = block_state();
  const char* problem = nullptr;
  void* const address = block.shared.array(site, bytes, alignment, problem);
  if (problem != nullptr) give_up(block, problem);
  return address;
}

void* dynamic_shared_array() {
  return block_state().shared.dynamic();
}

void count_atomic() {
  Block& block = block_state();
  if (++block.running->atomics > config().spin_limit) {
    give_up(block, "a thread spins on an atomic that no other thread will change");
  }
}

void require_alignment(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    give_up(block_state(), "an access that is wider than its address is aligned");
  }
}

cudaError_t set_dynamic_shared_limit(const void* kernel, int bytes) {
  const std::lock_guard lock(g_launch_mutex);
  if (bytes < 0 || bytes > config().shared_bytes_opt_in) {
    return error(cudaErrorInvalidValue, "more dynamic shared memory than the device has");
  }
  g_dynamic_limits[kernel] = bytes;
  return cudaSuccess;
}

int launch(const void* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
           const std::function<void()>& body) {
  if (t_launching) return error(cudaErrorInvalidValue, "a kernel launches a kernel, which this emulator cannot run");
  const std::lock_guard lock(g_launch_mutex);
  t_launching = true;
  const cudaError_t code = launch_locked(kernel, grid, block, dynamic_shared_bytes, body);
  t_launching = false;
  return code;
}

namespace {

cudaError_t launch_locked(const void* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          const std::function<void()>& body) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return error(cudaErrorInvalidConfiguration, "the grid or the block is empty or over CUDA's limits");
  }
  const auto found = g_dynamic_limits.find(kernel);
  const int limit = found == g_dynamic_limits.end() ? config().static_shared_bytes : found->second;
  if (dynamic_shared_bytes > static_cast<std::size_t>(limit)) {
    return error(cudaErrorInvalidValue, "dynamic shared memory over the kernel's limit of " + std::to_string(limit) +
                                            " bytes (cudaFuncSetAttribute raises it)");
  }
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_release(&g_launch_tag);
#endif
  ++g_stats.launches;
  g_stats.last_device = t_device;
  Block& state = block_state();
  state.seed(config().order);

  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::uint64_t step = 1;  // a step that shares no factor with the count visits every block once
  if (config().order >= 2) {
    step = state.random()() % blocks + 1;
    while (std::gcd(step, blocks) != 1) ++step;
  }
  for (std::uint64_t k = 0; k < blocks; ++k) {
    const std::uint64_t i = config().order == 1 ? blocks - 1 - k : k * step % blocks;
    const uint3 index{static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                      static_cast<unsigned>(i / (std::uint64_t{grid.x} * grid.y))};
    state.run(index, grid, block, dynamic_shared_bytes, body);
    if (state.failed()) return error(cudaErrorLaunchFailure, state.problem());  // blocks after it do not run
  }
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  __tsan_acquire(&g_exit_tag);
#endif
  return cudaSuccess;
}

}  // namespace

}  // namespace rewardkit::emulator

using rewardkit::emulator::config;

cudaError_t cudaGetLastError() {
  return std::exchange(rewardkit::emulator::t_last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return rewardkit::emulator::last_report();
  }
}

cudaError_t cudaGetDevice(int* device) {
  *device = rewardkit::emulator::t_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
  rewardkit::emulator::t_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = config().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulator");
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t) {
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
