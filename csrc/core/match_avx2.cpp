#if defined(__x86_64__)
#include <immintrin.h>

#include "core/match_common.hpp"

namespace rewardkit {

std::size_t common_tokens_avx2(const std::uint8_t* bytes, TokenSpan a, TokenSpan b) {
  const auto* const keys = reinterpret_cast<const __m256i*>(b.keys);
  const std::size_t vectors = (b.count + 3) / 4;
  return count_common(bytes, a, b, [=](std::uint64_t key) {
    const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(key));
    std::uint64_t found = 0;
    for (std::size_t v = 0; v < vectors; ++v) {
      const __m256i same = _mm256_cmpeq_epi64(wanted, _mm256_loadu_si256(keys + v));
      found |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(same))))
               << 4 * v;
    }
    return found;
  });
}

}  // namespace rewardkit
#endif
