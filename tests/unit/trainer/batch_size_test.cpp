// The search for a batch that fits in every process, each a fork of this one.
#include "hasten/trainer/batch_size.h"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace trainer_batch_size_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

// A trial that fits up to this many rows.
auto trial_fitting(std::int64_t most, std::vector<std::int64_t>* tried = nullptr) {
  return [=](std::int64_t rows) {
    if (tried != nullptr) tried->push_back(rows);
    TORCH_CHECK_WITH(OutOfMemoryError, rows <= most, "CUDA out of memory");
  };
}

}  // namespace

TEST_CASE("batch size: it is halved until it fits, and a step keeps its rows") {
  std::vector<std::int64_t> tried;
  const BatchSize found = find_executable_batch_size(
      Group::single(), {.rows = 24, .accumulation = 2}, trial_fitting(5, &tried));
  CHECK(tried == std::vector<std::int64_t>{24, 12, 6, 3});
  CHECK(found.rows == 3);
  CHECK(found.accumulation == 16);
  // Half of 7 does not divide the rows of a step.
  const BatchSize odd = find_executable_batch_size(Group::single(), {.rows = 7}, trial_fitting(6));
  CHECK(odd.rows * odd.accumulation == 7);
  CHECK(find_executable_batch_size(Group::single(), {.rows = 8}, trial_fitting(8)).rows == 8);
}

TEST_CASE("batch size: the floor, wrong numbers and other errors are reported") {
  const auto code = [](const BatchSize& start, std::int64_t most) {
    return code_of(
        [&] { find_executable_batch_size(Group::single(), start, trial_fitting(most)); });
  };
  CHECK(code({.rows = 8}, 0) == "trainer.batch-size-floor");
  CHECK(code({.rows = 8, .floor = 3}, 2) == "trainer.batch-size-floor");
  CHECK(code({.rows = 8, .floor = 4}, 4) == "none");
  CHECK(code({.rows = 0}, 4) == "trainer.batch-size");
  CHECK(code({.rows = 2, .floor = 4}, 4) == "trainer.batch-size");
  CHECK_THROWS_AS(find_executable_batch_size(Group::single(), {.rows = 4},
                                             [](std::int64_t) { throw std::domain_error("no"); }),
                  std::domain_error);
  std::int64_t calls = 0;
  find_executable_batch_size(Group::single(), {.rows = 4}, [&](std::int64_t) {
    if (++calls == 1) throw std::bad_alloc();
  });
  CHECK(calls == 2);
}

TEST_CASE("batch size: all processes agree on what fits in the one with the least memory") {
  notebook_launcher(
      [] {
        const Accelerator accelerator({.cpu = true});
        const Group& group = accelerator.group();
        const BatchSize found = find_executable_batch_size(
            group, {.rows = 16}, trial_fitting(group.rank() == 1 ? 4 : 100));
        require(found.rows == 4 && found.accumulation == 4, "another batch");
        const auto code = code_of([&] {
          find_executable_batch_size(group, {.rows = 16},
                                     trial_fitting(group.rank() == 0 ? 0 : 100));
        });
        require(code == "trainer.batch-size-floor", code);
        const auto other = code_of([&] {
          find_executable_batch_size(group, {.rows = group.rank() == 2 ? 8 : 16}, trial_fitting(4));
        });
        require(other == "trainer.batch-size", other);
      },
      {.num_processes = 3, .use_cpu = true});
}

}  // namespace trainer_batch_size_test
