// Splits independent rows of work among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace rewardkit {

// Calls work(i, worker) for every i in [0, count), on up to `threads` threads, of which the caller's is one; `worker`
// tells the threads apart, from 0 to threads - 1. `cost` is what one
// call takes, about in numbers touched: small jobs stay on the caller's thread, since starting a thread costs some 20
// microseconds. `work` must not throw.
template <class Work>
void parallel_for_workers(std::int64_t count, std::int64_t cost, int threads, const Work& work) {
  constexpr std::int64_t kWorthAThread = 1 << 17;
  const std::int64_t useful = cost > 0 ? count / std::max<std::int64_t>(1, kWorthAThread / cost) : 0;
  const std::int64_t workers = std::max<std::int64_t>(1, std::min({static_cast<std::int64_t>(threads), count, useful}));
  if (workers == 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i, std::int64_t{0});
    return;
  }
  const std::int64_t chunk = std::max<std::int64_t>(1, std::min<std::int64_t>(count / (workers * 8), 4096));
  std::atomic<std::int64_t> next{0};
  const auto run = [&](std::int64_t worker) {
    for (;;) {
      const std::int64_t first = next.fetch_add(chunk, std::memory_order_relaxed);
      if (first >= count) return;
      const std::int64_t last = std::min(count, first + chunk);
      for (std::int64_t i = first; i < last; ++i) work(i, worker);
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(workers - 1));
  struct Join {
    std::vector<std::thread>& threads;
    ~Join() {
      for (std::thread& thread : threads) thread.join();
    }
  } join{helpers};
  for (std::int64_t k = 1; k < workers; ++k) helpers.emplace_back(run, k);
  run(std::int64_t{0});
}

template <class Work>
void parallel_for(std::int64_t count, std::int64_t cost, int threads, const Work& work) {
  parallel_for_workers(count, cost, threads, [&](std::int64_t i, std::int64_t) { work(i); });
}

}  // namespace rewardkit
