#include "core/cpu_features.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace rewardkit {
namespace {

InstructionSet detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512_bf16;
  if (avx512) return InstructionSet::avx512;
  if (avx2) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

InstructionSet limit_from_environment() {
  const char* text = std::getenv("REWARDKIT_ISA");
  if (text == nullptr) return InstructionSet::avx512_bf16;
  const std::string_view name = text;
  if (name == "portable") return InstructionSet::portable;
  if (name == "avx2") return InstructionSet::avx2;
  if (name == "avx512") return InstructionSet::avx512;
  return InstructionSet::avx512_bf16;
}

}  // namespace

InstructionSet best_instruction_set() {
  static const InstructionSet chosen = std::min(detect(), limit_from_environment());
  return chosen;
}

const char* to_string(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::portable:
      break;
  }
  return "portable";
}

}  // namespace rewardkit
