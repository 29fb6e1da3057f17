// The parts of a list: every entry once, in order, as Accelerate divides them.
#include "hasten/process/detail/split.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <numeric>

#include "unit/code_of.h"

namespace process_split_test {

using namespace hasten;

TEST_CASE("split: every length and world gives each entry once, padded to equal length") {
  for (std::int64_t world = 1; world <= 5; ++world) {
    for (std::int64_t length = 0; length <= 17; ++length) {
      CAPTURE(world);
      CAPTURE(length);
      std::vector<std::int64_t> all(static_cast<std::size_t>(length));
      std::iota(all.begin(), all.end(), 0);
      std::vector<std::int64_t> together;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const ProcessState process{.process_index = rank, .num_processes = world};
        const auto part = split_between_processes(all, process);
        together.insert(together.end(), part.begin(), part.end());
        const auto padded = split_between_processes(all, process, true);
        CHECK(static_cast<std::int64_t>(padded.size()) == (length + world - 1) / world);
        CHECK(std::equal(part.begin(), part.end(), padded.begin()));
        const at::Tensor tensor = split_between_processes(torch::arange(length), process, true);
        CHECK(std::equal(padded.begin(), padded.end(), tensor.data_ptr<std::int64_t>()));
      }
      CHECK(together == all);
    }
  }
}

TEST_CASE("split: maps of lists and of tensors are split by their values") {
  const ProcessState second{.process_index = 1, .num_processes = 2};
  const std::map<std::string, std::vector<int>> lists = {{"a", {1, 2, 3}}, {"b", {4, 5, 6}}};
  CHECK(split_between_processes(lists, second) ==
        std::map<std::string, std::vector<int>>{{"a", {3}}, {"b", {6}}});
  const std::map<std::string, at::Tensor> tensors = {{"x", torch::arange(4)},
                                                     {"y", torch::arange(8).view({4, 2})}};
  CHECK(split_between_processes(tensors, second).at("y").sizes() == at::IntArrayRef({2, 2}));
  const std::map<std::string, std::vector<int>> uneven = {{"a", {1}}, {"b", {4, 5}}};
  CHECK(code_of([&] { split_between_processes(uneven, second); }) == "process.split");
}

}  // namespace process_split_test
