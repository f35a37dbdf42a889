// The least that a native test needs: checks that count, and a report at the end.
#pragma once

#include <cstdio>

namespace rewardkit::tests {

inline int checks = 0;
inline int failures = 0;

inline int report(const char* name) {
  std::printf("%s: %d checks, %d failed\n", name, checks, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace rewardkit::tests

#define RK_CHECK(condition, ...)                                  \
  do {                                                            \
    ++rewardkit::tests::checks;                                   \
    if (!(condition)) {                                           \
      ++rewardkit::tests::failures;                               \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                   \
      std::printf("\n");                                          \
    }                                                             \
  } while (false)
