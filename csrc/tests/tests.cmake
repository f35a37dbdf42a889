# Native tests, for ctest. REWARDKIT_SANITIZE says which sanitizer they run under; a seeded bug is run in the
# configurations that must catch it, and what it prints must say so.
enable_testing()

rewardkit_add_emulated_kernels(rewardkit_tested_kernels ${_sanitize})

function(rewardkit_native_test name)
  add_executable(${name} csrc/tests/${name}.cpp)
  target_compile_options(${name} PRIVATE ${REWARDKIT_WARNINGS} -Wno-unknown-pragmas ${_sanitize})
  target_link_options(${name} PRIVATE ${_sanitize})
  target_link_libraries(${name} PRIVATE rewardkit_tested_kernels)
endfunction()

foreach(_test test_emulator test_kernels)
  rewardkit_native_test(${_test})
  add_test(NAME ${_test} COMMAND ${_test})
endforeach()

# Bugs are built without optimisation: the compiler would remove some of them.
rewardkit_native_test(seeded_bugs)
target_compile_options(seeded_bugs PRIVATE -O0)

if(REWARDKIT_SANITIZE STREQUAL "address")
  set(_found address)
elseif(REWARDKIT_SANITIZE STREQUAL "thread")
  set(_found thread)
else()
  set(_found plain)
endif()

# rewardkit_seeded_bug(NAME plain REGEX address REGEX thread REGEX): what each configuration must print; a configuration
# that cannot see the bug is left out. `emulator` in a regex is what the emulator prints, `poison` a NaN in the output.
function(rewardkit_seeded_bug name)
  cmake_parse_arguments(_bug "" "plain;address;thread" "" ${ARGN})
  if(_bug_${_found})
    foreach(_order 0 1 7)
      add_test(NAME bug_${name}_order_${_order} COMMAND seeded_bugs ${name} ${_order})
      set_tests_properties(bug_${name}_order_${_order} PROPERTIES PASS_REGULAR_EXPRESSION "${_bug_${_found}}")
    endforeach()
  endif()
endfunction()
function(rewardkit_seen_by_emulator name text)
  rewardkit_seeded_bug(${name} plain "emulator: .*${text}" address "emulator: .*${text}" thread "emulator: .*${text}")
endfunction()

rewardkit_seeded_bug(missing_barrier plain "poison" address "poison" thread "ThreadSanitizer: data race")
rewardkit_seeded_bug(static_shared_overflow address "AddressSanitizer: use-after-poison")
rewardkit_seeded_bug(dynamic_shared_overflow address "AddressSanitizer: use-after-poison")
rewardkit_seeded_bug(global_read_past_end address "AddressSanitizer: heap-buffer-overflow")
rewardkit_seeded_bug(misaligned_vector_load address "misaligned address")
rewardkit_seeded_bug(race_between_blocks thread "ThreadSanitizer: data race")
rewardkit_seeded_bug(race_within_block thread "ThreadSanitizer: data race")
rewardkit_seeded_bug(unwritten_shared plain "poison" address "poison" thread "poison")
rewardkit_seeded_bug(scratch_reused_without_barrier thread "ThreadSanitizer: data race")
rewardkit_seeded_bug(warp_in_lockstep plain "poison" address "poison" thread "ThreadSanitizer: data race")
rewardkit_seen_by_emulator(misaligned_checked_load "wider than its address is aligned")
rewardkit_seen_by_emulator(barrier_in_branches "__syncthreads in branches that differ")
rewardkit_seen_by_emulator(return_before_barrier "after part of the block has left")
rewardkit_seen_by_emulator(full_mask_in_branch "a lane that has left|wait for one another")
rewardkit_seen_by_emulator(dynamic_shared_without_opt_in "over the kernel's limit")
rewardkit_seen_by_emulator(static_shared_over_limit "static shared memory over the limit")
rewardkit_seen_by_emulator(block_too_large "over CUDA's limits")
rewardkit_seen_by_emulator(grid_y_too_large "over CUDA's limits")
rewardkit_seen_by_emulator(shuffle_from_outside_mask "reads a lane outside the mask")
rewardkit_seen_by_emulator(mask_beyond_block "a lane beyond the block")
rewardkit_seen_by_emulator(spin_without_end "spins on an atomic")
rewardkit_seen_by_emulator(launch_from_kernel "a kernel launches a kernel")

# The controls: right, and silent in every configuration and order.
foreach(_name warp_with_syncwarp scratch_reused_with_barrier)
  foreach(_order 0 1 7)
    add_test(NAME control_${_name}_order_${_order} COMMAND seeded_bugs ${_name} ${_order})
    set_tests_properties(control_${_name}_order_${_order} PROPERTIES FAIL_REGULAR_EXPRESSION "Sanitizer")
  endforeach()
endforeach()

# The portable way to switch contexts, which processors other than x86-64 take, on this one.
if(NOT REWARDKIT_SANITIZE)
  rewardkit_add_emulator(rewardkit_emulator_portable RK_EMULATOR_UCONTEXT)
  add_executable(test_emulator_portable csrc/tests/test_emulator.cpp)
  target_compile_options(test_emulator_portable PRIVATE ${REWARDKIT_WARNINGS} -Wno-unknown-pragmas)
  target_link_libraries(test_emulator_portable PRIVATE rewardkit_emulator_portable)
  add_test(NAME test_emulator_portable COMMAND test_emulator_portable)
endif()
