// What this machine's processor can run, asked once; kernels with several implementations choose by it.
#pragma once

namespace rewardkit {

enum class InstructionSet { portable, avx2, avx512, avx512_bf16 };

// The best set that processor and operating system support. REWARDKIT_ISA=portable|avx2|avx512|avx512_bf16 in the
// environment lowers it (never raises it), so that a test can reach every path on one machine.
InstructionSet best_instruction_set();

const char* to_string(InstructionSet set);

}  // namespace rewardkit
