// Execution contexts that can be switched by hand, with what the sanitizers must be told about it.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(RK_EMULATOR_UCONTEXT)
#define RK_EMULATOR_PORTABLE_SWITCH 1
#include <ucontext.h>
#endif

namespace rewardkit::emulator {

// A suspended or running line of execution on a stack of its own. The context of the caller of `launch` has no stack
// here: it runs on the thread's.
class Context {
 public:
  // Makes the context start in `entry` (which must not return) at the next switch to it.
  void prepare(char* stack, std::size_t size, void (*entry)());

  // Suspends `from`, which must be running, and runs `to`. `last` says that `from` will not run again.
  static void switch_to(Context& from, Context& to, bool last);

  // To be called first thing on a new context: completes the switch that started it from `from`.
  static void started(Context& from);

  // The context of the code that runs now, which was not started by prepare().
  void adopt_current();

  void* thread_sanitizer_fiber = nullptr;  // set by the scheduler, which owns a pool of them

 private:
#if defined(RK_EMULATOR_PORTABLE_SWITCH)
  ucontext_t state_{};
#else
  void* stack_pointer_ = nullptr;
#endif
  const void* stack_bottom_ = nullptr;
  std::size_t stack_size_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace rewardkit::emulator
