// The tests of samplers in test_trainer_data.py and test_trainer_utils.py of transformers'
// tests/trainer, assert by assert: they check which rows each process reads. The comments name the
// tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_trainer_sharding_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

using Rows = std::vector<std::int64_t>;

// Requires that the processes together read the rows 0, 1, 2, ... to the end, batch by batch.
// Without drop_last, they begin again at 0 until all batches are full.
template <class Dataset>
void require_shards(std::int64_t count, std::int64_t batch_size, bool drop_last) {
  Accelerator accelerator;
  const std::int64_t step = batch_size * accelerator.process().num_processes;
  auto raw = make_loader(Dataset{count}, {.batch_size = batch_size, .drop_last = drop_last});
  auto [loader] = accelerator.prepare(raw);
  Rows observed;
  for (auto& batch : loader) {
    require(batch.size(0) == batch_size, "a batch is not full");
    const at::Tensor all = accelerator.gather(batch);
    observed.insert(observed.end(), all.data_ptr<std::int64_t>(),
                    all.data_ptr<std::int64_t>() + all.numel());
  }
  const std::int64_t steps = drop_last ? count / step : (count + step - 1) / step;
  Rows expected;
  for (std::int64_t row = 0; row < steps * step; ++row) expected.push_back(row % count);
  require(observed == expected,
          str(count, " rows, drop_last ", drop_last, ": ", observed.size(), " rows"));
}

}  // namespace

TEST_CASE("sharding: the processes read the rows in turn, and start over to fill the last step") {
  // test_iterable_dataset_shard, test_iterable_dataset_shard_with_length, test_shard_sampler
  for (const int world : {2, 3}) {
    debug_launcher(
        [] {
          for (const std::int64_t count : {57, 64, 100, 123}) {
            for (const bool drop_last : {true, false}) {
              require_shards<NumberRows>(count, 4, drop_last);
              require_shards<NumberStream>(count, 4, drop_last);
            }
          }
        },
        world);
  }
}

TEST_CASE("sharding: rows in their order come once, and those that fill the last step come again") {
  // test_sequential_distributed_sampler
  debug_launcher([] {
    for (const std::int64_t count : {23, 64, 123}) {
      for (const std::int64_t batch_size : {1, 16})
        require_shards<NumberRows>(count, batch_size, /*drop_last=*/false);
    }
  });
}

TEST_CASE("sharding: shuffled rows come once, and those that fill the last step come again") {
  // test_distributed_sampler_with_loop
  debug_launcher([] {
    Accelerator accelerator;
    for (const std::int64_t count : {23, 64, 123}) {
      auto raw = make_loader(NumberRows{count}, {.batch_size = 16, .shuffle = true});
      auto [loader] = accelerator.prepare(raw);
      Rows total;
      for (auto& batch : loader) {
        require(batch.size(0) == 16, "a batch is not full");
        const at::Tensor all = accelerator.gather(batch);
        total.insert(total.end(), all.data_ptr<std::int64_t>(),
                     all.data_ptr<std::int64_t>() + all.numel());
      }
      const Rows again(total.begin() + count, total.end());
      require(std::equal(again.begin(), again.end(), total.begin()), "the rows that come again");
      total.resize(static_cast<std::size_t>(count));
      std::sort(total.begin(), total.end());
      for (std::int64_t row = 0; row < count; ++row)
        require(total[static_cast<std::size_t>(row)] == row, "each row comes once");
    }
  });
}

TEST_CASE("sharding: rows that are grouped by length come once, the longest first") {
  // test_group_by_length, test_distributed_length_grouped
  for (const int world : {1, 2}) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          torch::manual_seed(5);
          const at::Tensor random = torch::randint(0, 25, {100});
          std::vector<std::int64_t> lengths(random.data_ptr<std::int64_t>(),
                                            random.data_ptr<std::int64_t>() + 100);
          lengths[32] = 50;
          auto raw =
              make_loader(NumberRows{100},
                          {.batch_size = 4, .order = length_grouped_order(lengths, 4 * world)});
          auto [loader] = accelerator.prepare(raw);
          std::vector<at::Tensor> steps;
          for (auto& batch : loader) steps.push_back(accelerator.gather_for_metrics(batch));
          const at::Tensor rows = at::cat(steps);
          require(rows[0].item<std::int64_t>() == 32, "the longest row is the first one");
          require(at::equal(std::get<0>(rows.sort()), torch::arange(100)), "each row comes once");
        },
        world);
  }
}

}  // namespace ported_trainer_sharding_test
