// Sums along a tree of the ranks, in shared memory and by messages.
#include "process/group/tree_all_reduce.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/prepare/multiprocess_checks.h"

namespace process_tree_all_reduce_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

constexpr std::int64_t kBufferBytes = 1 << 20;

// The tensors of a rank, which are the same in every process. They have two types, and some are
// larger than the buffer.
std::vector<at::Tensor> tensors_of(std::int64_t rank) {
  torch::manual_seed(static_cast<std::uint64_t>(20 + rank));
  const auto numbers = [](at::IntArrayRef shape) {
    return at::randn(shape) * at::randn({1}).exp();
  };
  return {numbers({5, 3}),
          numbers({1}),
          numbers({300000}),
          numbers({2, 400001}),
          numbers({77}).to(at::kDouble),
          at::empty({0})};
}

at::Tensor expected_tree_sum(std::int64_t first, std::int64_t ranks, std::size_t tensor) {
  if (ranks == 1) return tensors_of(first)[tensor];
  return expected_tree_sum(first, ranks / 2, tensor) +
         expected_tree_sum(first + ranks / 2, ranks / 2, tensor);
}

}  // namespace

TEST_CASE("tree all-reduce: every rank has the bits of the tree, however the ranks communicate") {
  for (const int ranks : {1, 2, 4}) {
    notebook_launcher(
        [] {
          const Worker worker = this_worker();
          for (const bool shared_memory : {true, false}) {
            const Group group = Group::form(worker, {.shared_memory = shared_memory});
            TreeAllReduce all_reduce(group, kBufferBytes);
            for (int round = 0; round < 2; ++round) {
              const std::vector<at::Tensor> own = tensors_of(group.rank());
              all_reduce.sum(own);
              for (std::size_t i = 0; i < own.size(); ++i) {
                require(at::equal(own[i], expected_tree_sum(0, group.size(), i)),
                        str("tensor ", i, " of ", group.size(), " ranks"));
              }
            }
          }
        },
        {.num_processes = ranks, .use_cpu = true});
  }
}

}  // namespace process_tree_all_reduce_test
