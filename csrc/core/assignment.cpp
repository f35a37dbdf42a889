#include "core/assignment.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace rewardkit {
namespace {

constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

// Kuhn's algorithm, one search for an augmenting path per left vertex, breadth first so that no input makes it recurse.
class Matching {
 public:
  // covered[left]: 1 where the vertex is matched, earlier ones first.
  void run(std::size_t left, std::size_t right, std::uint8_t* covered) {
    owner_.assign(right, kNobody);
    mate_.assign(left, kNobody);
    reached_from_.resize(right);
    unseen_.resize(words_);
    for (std::size_t v = 0; v < left; ++v) covered[v] = augment(v) ? 1 : 0;
  }

  // edge(l, r) says whether two vertices may be matched.
  template <class Edge>
  void set_edges(std::size_t left, std::size_t right, const Edge& edge) {
    words_ = (right + 63) / 64;
    edges_.assign(left * words_, 0);
    for (std::size_t l = 0; l < left; ++l) {
      for (std::size_t r = 0; r < right; ++r) {
        edges_[l * words_ + r / 64] |= static_cast<std::uint64_t>(edge(l, r) ? 1 : 0) << (r % 64);
      }
    }
  }

 private:
  bool augment(std::size_t root) {
    std::fill(unseen_.begin(), unseen_.end(), ~std::uint64_t{0});
    queue_.assign(1, root);
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::size_t from = queue_[head];
      for (std::size_t word = 0; word < words_; ++word) {
        for (std::uint64_t next = edges_[from * words_ + word] & unseen_[word]; next != 0; next &= next - 1) {
          const std::size_t r = word * 64 + static_cast<std::size_t>(std::countr_zero(next));
          reached_from_[r] = from;
          if (owner_[r] == kNobody) {
            flip_path(root, r);
            return true;
          }
          queue_.push_back(owner_[r]);
        }
        unseen_[word] &= ~edges_[from * words_ + word];
      }
    }
    return false;
  }

  void flip_path(std::size_t root, std::size_t r) {
    for (;;) {
      const std::size_t l = reached_from_[r];
      const std::size_t freed = mate_[l];
      owner_[r] = l;
      mate_[l] = r;
      if (l == root) return;
      r = freed;
    }
  }

  std::size_t words_ = 0;
  std::vector<std::uint64_t> edges_, unseen_;
  std::vector<std::size_t> owner_, mate_, reached_from_, queue_;
};

}  // namespace

void assign_credit(const std::uint8_t* equal, std::size_t answers, std::size_t golds, bool distinct,
                   std::uint8_t* correct, std::uint8_t* found) {
  std::fill(correct, correct + answers, std::uint8_t{0});
  std::fill(found, found + golds, std::uint8_t{0});
  std::size_t most_golds = 0;
  for (std::size_t k = 0; k < answers; ++k) {
    std::size_t of_answer = 0;
    for (std::size_t m = 0; m < golds; ++m) {
      if (equal[k * golds + m] == 0) continue;
      correct[k] = found[m] = 1;
      ++of_answer;
    }
    most_golds = std::max(most_golds, of_answer);
  }
  if (!distinct) return;
  if (most_golds <= 1) {  // nothing to choose: the first answer of each gold is credited
    for (std::size_t m = 0; m < golds; ++m) {
      bool credited = false;
      for (std::size_t k = 0; k < answers; ++k) {
        if (equal[k * golds + m] == 0) continue;
        if (credited) correct[k] = 0;
        credited = true;
      }
    }
    return;
  }
  thread_local Matching matching;
  matching.set_edges(answers, golds, [=](std::size_t k, std::size_t m) { return equal[k * golds + m] != 0; });
  matching.run(answers, golds, correct);
  matching.set_edges(golds, answers, [=](std::size_t m, std::size_t k) { return equal[k * golds + m] != 0; });
  matching.run(golds, answers, found);
}

}  // namespace rewardkit
