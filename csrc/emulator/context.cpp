#include "emulator/context.hpp"

#include <cstdint>

#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(RK_EMULATOR_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(RK_EMULATOR_PORTABLE_SWITCH)
// Saves what the System V ABI asks a callee to save, and exchanges the stack pointers. swapcontext does the same with a
// system call for the signal mask in it, and is ten times slower.
extern "C" void rewardkit_emulator_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl rewardkit_emulator_switch
.hidden rewardkit_emulator_switch
.type rewardkit_emulator_switch,@function
rewardkit_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rewardkit_emulator_switch,.-rewardkit_emulator_switch
)");
#endif

namespace rewardkit::emulator {

void Context::prepare(char* stack, std::size_t size, void (*entry)()) {
  stack_bottom_ = stack;
  stack_size_ = size;
  fake_stack_ = nullptr;
#if defined(RK_EMULATOR_PORTABLE_SWITCH)
  getcontext(&state_);
  state_.uc_stack.ss_sp = stack;
  state_.uc_stack.ss_size = size;
  state_.uc_link = nullptr;
  makecontext(&state_, entry, 0);
#else
  const auto top = (reinterpret_cast<std::uintptr_t>(stack) + size) & ~std::uintptr_t{15};
  auto slot = reinterpret_cast<void**>(top) - 1;  // a return address of null: the stack is as after a call
  *slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  for (int callee_saved = 0; callee_saved < 6; ++callee_saved) *--slot = nullptr;
  stack_pointer_ = slot;
#endif
}

void Context::adopt_current() {
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  thread_sanitizer_fiber = __tsan_get_current_fiber();
#endif
}

void Context::switch_to(Context& from, Context& to, [[maybe_unused]] bool last) {
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack_, to.stack_bottom_, to.stack_size_);
#endif
#if defined(RK_EMULATOR_THREAD_SANITIZER)
  // No happens-before comes from the switch itself: two CUDA threads are not ordered because we run them in turn.
  __tsan_switch_to_fiber(to.thread_sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(RK_EMULATOR_PORTABLE_SWITCH)
  swapcontext(&from.state_, &to.state_);
#else
  rewardkit_emulator_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

void Context::started([[maybe_unused]] Context& from) {
#if defined(RK_EMULATOR_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(nullptr, &from.stack_bottom_, &from.stack_size_);
#endif
}

}  // namespace rewardkit::emulator
