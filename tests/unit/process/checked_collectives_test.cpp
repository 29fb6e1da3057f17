// Collectives between processes, each a fork of this one: what they exchange, and how calls that
// differ are reported.
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "process/backend/call_checker.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace process_checked_collectives_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

TEST_CASE("distributed: tensors of any form, objects of any length, and a flag are exchanged") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        const Group& group = accelerator.group();
        const std::int64_t rank = group.rank();
        const std::map<std::string, at::Tensor> own = {{"a", torch::full({2, 3}, rank)},
                                                       {"b", torch::full({1}, 10.0 * rank)}};
        const auto all = accelerator.gather(own);
        require(all.at("a").size(0) == 6 && all.at("b").size(0) == 3,
                "both tensors of three processes");
        require(accelerator.reduce(own).at("b").item<double>() == 30, "their sums");
        const std::string text(static_cast<std::size_t>(rank * 1000),
                               static_cast<char>('a' + rank));
        const std::vector<std::string> texts = group.gather_object(text);
        for (std::int64_t each = 0; each < 3; ++each)
          require(
              texts[static_cast<std::size_t>(each)] ==
                  std::string(static_cast<std::size_t>(each * 1000), static_cast<char>('a' + each)),
              "objects");
        require(group.broadcast_object(text, 1) == texts[1], "one object for all");
        require(!accelerator.check_trigger(), "the flag is set too early");
        if (rank == 2) accelerator.set_trigger();
        require(accelerator.check_trigger(), "the flag is not seen");
        require(!accelerator.check_trigger(), "the flag is seen twice");
        const auto part =
            accelerator.split_between_processes(std::vector<int>{1, 2, 3, 4, 5, 6, 7});
        require(part == (rank == 0   ? std::vector<int>{1, 2, 3}
                         : rank == 1 ? std::vector<int>{4, 5}
                                     : std::vector<int>{6, 7}),
                "parts of a list");
      },
      3);
}

TEST_CASE("distributed: with debug every process reports a different collective") {
  const auto mismatch = [](const std::function<void(const Group&)>& call,
                           const std::string& expected_text) {
    debug_launcher([&] {
      const Accelerator accelerator(
          {.process_group = {.timeout = std::chrono::seconds(20)}, .debug = true});
      accelerator.wait_for_everyone();
      require(accelerator.gather(torch::ones({2})).sum().item<double>() == 4,
              "equal calls do not work");
      try {
        call(accelerator.group());
      } catch (const UsageError& error) {
        require(error.code() == "process.calls-differ", error.code());
        require(std::string(error.what()).find(expected_text) != std::string::npos, error.what());
        accelerator.wait_for_everyone();  // all have thrown
        return;
      }
      throw std::runtime_error("nothing was thrown");
    });
  };
  mismatch([](const Group& group) { group.gather(torch::ones({group.rank() + 2})); },
           "the group's 3rd collective differs on rank 1: got all_gather of 3 float, expected "
           "all_gather of 2 float, as on rank 0");
  mismatch(
      [](const Group& group) {
        group.gather(torch::ones({2}, group.rank() == 0 ? torch::kFloat : torch::kInt));
      },
      "got all_gather of 2 int, expected all_gather of 2 float, as on rank 0");
  mismatch([](const Group& group) { group.broadcast(torch::ones({2}), group.rank()); },
           "got broadcast of 2 float, root 1, expected broadcast of 2 float, root 0");
  mismatch(
      [](const Group& group) {
        group.reduce(torch::ones({2}), group.rank() == 0 ? Reduction::sum : Reduction::max);
      },
      "got all_reduce (max) of 2 float, expected all_reduce of 2 float");
  mismatch(
      [](const Group& group) {
        group.rank() == 0 ? static_cast<void>(group.reduce(torch::ones({2}))) : group.barrier();
      },
      "got barrier, expected all_reduce of 2 float");
}

TEST_CASE("distributed: with debug a rank that has left and the one that differs are named") {
  debug_launcher([] {
    auto accelerator = std::make_unique<Accelerator>(AcceleratorOptions{.debug = true});
    const Group group = accelerator->group();
    group.barrier();
    if (group.rank() == 1) return;
    accelerator.reset();
    require(code_of([&] { group.barrier(); }) == "process.rank-missing",
            "the missing rank is not reported");
  });
  debug_launcher(
      [] {
        const Accelerator accelerator({.debug = true});
        const Group& group = accelerator.group();
        try {
          group.rank() == 2 ? static_cast<void>(group.gather(torch::ones({1})))
                            : static_cast<void>(group.gather(torch::ones({1, 2})));
        } catch (const UsageError& error) {
          require(std::string(error.what()).find("differs on rank 2: ") != std::string::npos,
                  error.what());
          return;
        }
        throw std::runtime_error("nothing was thrown");
      },
      4);
}

TEST_CASE("distributed: comparisons by messages and by shared memory agree, for 2 to 5 ranks") {
  for (const int count : {2, 3, 5}) {
    debug_launcher(
        [] {
          const Accelerator accelerator;
          const Group& group = accelerator.group();
          const auto comparison =
              make_message_comparison(group.native()->getBackend(c10::DeviceType::CPU));
          for (std::uint64_t number : {0ULL, 7ULL, ~0ULL}) {
            require(comparison->is_same_on_all_ranks(number), "the same");
            for (std::int64_t other = 0; other < group.size(); ++other)
              require(
                  !comparison->is_same_on_all_ranks(group.rank() == other ? number + 1 : number),
                  "not the same");
          }
        },
        count);
  }
}

}  // namespace process_checked_collectives_test
