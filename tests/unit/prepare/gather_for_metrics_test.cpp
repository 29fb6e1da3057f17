// Metrics of several processes, each a fork of this one, count every row of a loader once.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/text.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_gather_for_metrics_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

// The rows 0 to count - 1 in order.
struct Stream {
  std::int64_t count;
  std::int64_t at = 0;
  std::optional<at::Tensor> next() {
    if (at == count) return std::nullopt;
    return torch::full({2}, at++, at::kLong);
  }
  void rewind(std::int64_t) { at = 0; }
};

// Returns all rows that gather_for_metrics gives in a pass.
std::vector<std::int64_t> gather_rows(Accelerator& accelerator, auto& loader, std::int64_t full) {
  std::vector<std::int64_t> got;
  const bool even = full > 0;
  auto guard = accelerator.join_uneven_inputs({.even_batches = even});
  for (auto& batch : loader) {
    require(!even || batch.size(0) == full, "every batch is full");
    const at::Tensor all = accelerator.gather_for_metrics(batch.select(1, 0));
    for (std::int64_t i = 0; i < all.size(0); ++i) got.push_back(all[i].item<std::int64_t>());
  }
  return got;
}

}  // namespace

TEST_CASE("gather for metrics: it gives every row once, in order, in 600 random combinations") {
  for (const int world : {2, 3, 4}) {
    debug_launcher(
        [=] {
          std::map<std::pair<bool, std::optional<bool>>, std::unique_ptr<Accelerator>> accelerators;
          for (const bool split : {false, true}) {
            for (const auto dispatch :
                 {std::optional<bool>(), std::optional(false), std::optional(true)})
              accelerators[{split, dispatch}] = std::make_unique<Accelerator>(AcceleratorOptions{
                  .dataloader_config = {.split_batches = split, .dispatch_batches = dispatch}});
          }
          torch::manual_seed(world);
          const auto random = [](std::int64_t least, std::int64_t most) {
            return torch::randint(least, most + 1, {1}).item<std::int64_t>();
          };
          for (int trial = 0; trial < 200; ++trial) {
            const bool split = trial % 3 == 0, drop_last = trial % 4 == 0, even = trial % 7 < 4;
            const bool stream = trial % 5 == 1, shuffle = trial % 2 == 0 && !stream;
            std::optional<bool> dispatch;
            if (trial % 11 < 6) dispatch = trial % 11 < 3;
            const std::int64_t batch_size = split ? world * random(1, 3) : random(1, 5);
            const std::int64_t step = split ? batch_size : batch_size * world;
            const std::int64_t rows = drop_last ? random(step, 40 + step) : random(1, 40);
            Accelerator& accelerator = *accelerators.at({split, dispatch});
            const LoaderOptions options{.batch_size = batch_size,
                                        .shuffle = shuffle,
                                        .drop_last = drop_last,
                                        .num_workers = trial % 6 == 0 ? 1 : 0,
                                        .seed = static_cast<std::uint64_t>(trial)};
            auto whole = make_loader(Numbers{rows},
                                     {.batch_size = 1, .shuffle = shuffle, .seed = options.seed});
            std::vector<std::int64_t> expected;
            for (auto& row : whole) expected.push_back(row[0][0].template item<std::int64_t>());
            if (drop_last) expected.resize(static_cast<std::size_t>(rows / step * step));
            std::vector<std::int64_t> got;
            const std::int64_t full = even ? step / world : 0;
            if (stream) {
              auto raw = make_loader(Stream{rows}, options);
              auto [loader] = accelerator.prepare(raw);
              got = gather_rows(accelerator, loader, full);
            } else {
              auto raw = make_loader(Numbers{rows}, options);
              auto [loader] = accelerator.prepare(raw);
              got = gather_rows(accelerator, loader, full);
            }
            // A process without a batch in the last step has no result.
            if (!even && accelerator.group().rank() > 0 && got.size() < expected.size()) {
              const std::size_t steps = (expected.size() - 1) / static_cast<std::size_t>(step);
              expected.resize(steps * static_cast<std::size_t>(step));
            }
            require(got == expected,
                    str("world ", world, ", rows ", rows, ", batch_size ", batch_size, ", split ",
                        split, ", drop_last ", drop_last, ", even ", even, ", stream ", stream,
                        ", dispatch ", dispatch ? (*dispatch ? "yes" : "no") : "unset", ": ",
                        got.size(), " rows of ", expected.size()));
          }
        },
        world);
  }
}

TEST_CASE("gather for metrics: it gives every row once if the batches are rebalanced") {
  debug_launcher([] {
    constexpr std::int64_t kRows = 37;
    std::vector<std::int64_t> lengths, expected;
    for (std::int64_t row = 0; row < kRows; ++row) {
      lengths.push_back(1 + row * row % 11);
      expected.push_back(row);
    }
    Accelerator accelerator;
    auto raw =
        make_loader(Numbers{kRows},
                    {.batch_size = 4, .shuffle = true, .rebalance = Rebalance{.lengths = lengths}});
    auto [loader] = accelerator.prepare(raw);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::int64_t> got;
      for (auto& batch : loader) {
        const at::Tensor all = accelerator.gather_for_metrics(batch.select(1, 0));
        for (std::int64_t i = 0; i < all.size(0); ++i) got.push_back(all[i].item<std::int64_t>());
      }
      std::sort(got.begin(), got.end());
      require(got == expected, str("epoch ", epoch, " has ", got.size(), " rows"));
    }
  });
}

TEST_CASE("gather for metrics: loaders that cannot be divided are counted exactly") {
  for (std::int64_t count = 1; count <= 9; ++count) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          std::vector<at::Tensor> batches;  // their sizes differ
          std::int64_t rows = 0;
          for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t size = 1 + (i * 7) % 4;
            batches.push_back(torch::arange(rows, rows + size));
            rows += size;
          }
          auto [loader] = accelerator.prepare(batches);
          // The batches of a step may have different sizes only in the last step, so this loop
          // gathers only there.
          std::int64_t steps = 0, real = 0;
          for (auto& batch : loader) {
            ++steps;
            const bool last = steps == (count + 2) / 3;
            if (last) real += accelerator.gather_for_metrics(batch).size(0);
          }
          require(steps == (count + 2) / 3, "the numbers of steps differ");
          std::int64_t expected = 0;
          for (std::int64_t i = (steps - 1) * 3; i < count; ++i) expected += 1 + (i * 7) % 4;
          require(real == expected, str(real, " rows of ", expected));
        },
        3);
  }
}

namespace {

// A batch whose members cannot be enumerated.
class OpaqueBatch {
 public:
  explicit OpaqueBatch(at::Tensor rows) : rows_(std::move(rows)) {}
  const at::Tensor& rows() const { return rows_; }

 private:
  at::Tensor rows_;
};
struct PlainBatch {
  at::Tensor data, target, weight;
  std::string name;
};

// Reads every row of five batches once; the last step repeats some.
template <class Make, class Rows>
void check_each_row_counts_once(Accelerator& accelerator, const char* type, Make&& make,
                                Rows&& rows_of) {
  using Batch = decltype(make(at::Tensor()));
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < 5; ++i) batches.push_back(make(torch::arange(i * 4, i * 4 + 4)));
  auto [loader] = accelerator.prepare(batches);
  std::vector<at::Tensor> all;
  int steps = 0;
  for (auto& batch : loader) {
    all.push_back(accelerator.gather_for_metrics(rows_of(batch)));
    ++steps;
  }
  const std::int64_t world = accelerator.group().size();
  require(steps == (5 + world - 1) / world, "the numbers of steps differ");
  require(at::equal(at::cat(all), torch::arange(20)),
          str(type, ": ", at::cat(all).size(0), " rows of 20"));
}

}  // namespace

TEST_CASE("gather for metrics: repeated batches count nothing, whatever their type") {
  for (const int world : {2, 3}) {
    debug_launcher(
        [] {
          Accelerator accelerator;
          const auto check = [&](const char* type, auto make, auto rows_of) {
            check_each_row_counts_once(accelerator, type, make, rows_of);
          };
          using torch::data::TensorExample;
          using Tuple = std::tuple<at::Tensor, at::Tensor, int>;
          using Array = std::array<at::Tensor, 2>;
          using Unordered = std::unordered_map<std::string, at::Tensor>;
          using Optional = std::optional<at::Tensor>;
          const auto unchanged = [](const auto& batch) { return at::Tensor(batch); };
          check(
              "a tensor", [](at::Tensor rows) { return rows; }, unchanged);
          check(
              "TensorExample", [](at::Tensor rows) { return TensorExample(rows); },
              [](const TensorExample& batch) { return batch.data; });
          check(
              "tuple",
              [](at::Tensor rows) {
                return Tuple{rows, rows + 1, 7};
              },
              [](const Tuple& batch) { return std::get<0>(batch); });
          check(
              "array",
              [](at::Tensor rows) {
                return Array{rows, rows};
              },
              [](const Array& batch) { return batch[1]; });
          check(
              "unordered_map",
              [](at::Tensor rows) {
                return Unordered{{"x", rows}};
              },
              [](const Unordered& batch) { return batch.at("x"); });
          check(
              "optional", [](at::Tensor rows) { return Optional(rows); },
              [](const Optional& batch) { return *batch; });
          check(
              "a plain struct",
              [](at::Tensor rows) {
                return PlainBatch{rows, rows, rows, "name"};
              },
              [](const PlainBatch& batch) { return batch.weight; });
          check(
              "a class that is not known", [](at::Tensor rows) { return OpaqueBatch(rows); },
              [](const OpaqueBatch& batch) { return batch.rows(); });
          // x has a different number of rows than the first tensor.
          check(
              "tensors that disagree",
              [](at::Tensor rows) {
                return TensorDict{{"edges", torch::zeros({2, 9})}, {"x", rows}};
              },
              [](const TensorDict& batch) { return batch.at("x"); });
        },
        world);
  }
}

TEST_CASE("gather for metrics: a value without rows is refused in a padded last step") {
  debug_launcher([] {
    Accelerator accelerator;
    auto raw = make_loader(Numbers{5}, {.batch_size = 2});
    auto [loader] = accelerator.prepare(raw);
    int step = 0;
    for (auto& batch : loader) {
      ++step;
      const at::Tensor mean = batch.to(at::kFloat).mean();
      if (step == 1) require(accelerator.gather_for_metrics(mean).numel() == 2, "a full step");
      if (step == 2)
        require(code_of([&] { accelerator.gather_for_metrics(mean); }) == "prepare.not-rows",
                "the last");
    }
    require(step == 2, "two steps");
  });
}

TEST_CASE("gather for metrics: rows that pad to a static shape count nothing") {
  debug_launcher([] {
    Accelerator accelerator({.dataloader_config = {.pad_to_static_shapes = true}});
    std::vector<TensorDict> batches;
    std::int64_t rows = 0;
    for (const std::int64_t size : {8, 8, 8, 5, 8, 8, 3}) {
      batches.push_back(
          {{"x", torch::ones({size, 2})}, {"labels", torch::arange(rows, rows + size)}});
      rows += size;
    }
    auto [loader] = accelerator.prepare(batches);
    std::vector<at::Tensor> all;
    for (auto& batch : loader) {
      require(batch.at("labels").size(0) == 8, "every batch is padded");
      all.push_back(accelerator.gather_for_metrics(batch.at("labels")));
    }
    require(all.size() == 4, "the numbers of steps differ");
    require(at::equal(at::cat(all), torch::arange(rows)),
            str(at::cat(all).size(0), " rows of ", rows));
  });
}

}  // namespace prepare_gather_for_metrics_test
