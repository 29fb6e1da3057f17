// Random numbers in several processes, each a fork of this one. All of them read the same batches
// from a foreign loader, no matter what else they draw.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_randomness_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

namespace {

using Numbers64 = std::vector<std::int64_t>;

struct Dataset : torch::data::datasets::Dataset<Dataset> {
  explicit Dataset(std::int64_t rows, bool noisy = false) : rows(rows), noisy(noisy) {}
  torch::data::Example<> get(std::size_t row) override {
    const at::Tensor noise = noisy ? torch::rand({2}) : torch::zeros({2});
    return {torch::full({2}, static_cast<double>(row)) + noise,
            torch::full({}, static_cast<std::int64_t>(row), at::kLong)};
  }
  torch::optional<std::size_t> size() const override { return rows; }
  std::size_t rows;
  bool noisy;
};

auto dataset_of(std::int64_t rows, bool noisy = false) {
  return Dataset(rows, noisy).map(torch::data::transforms::Stack<>());
}

auto shuffled_loader(std::int64_t rows, std::size_t workers = 0) {
  return torch::data::make_data_loader(
      dataset_of(rows), torch::data::DataLoaderOptions().batch_size(4).workers(workers));
}

// Draws each row when it is read, with LibTorch's generator or its own engine.
class DrawingSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit DrawingSampler(std::size_t rows, std::optional<std::uint64_t> own_seed = {})
      : rows_(rows), own_(own_seed) {
    if (own_seed) engine_.seed(*own_seed);
  }
  void reset(torch::optional<std::size_t> = torch::nullopt) override {
    left_.clear();
    for (std::size_t row = 0; row < rows_; ++row) left_.push_back(row);
  }
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
    std::vector<std::size_t> batch;
    while (batch.size() < batch_size && !left_.empty()) {
      const auto count = static_cast<std::int64_t>(left_.size());
      const auto place = own_ ? static_cast<std::int64_t>(engine_() % left_.size())
                              : torch::randint(0, count, {1}).item<std::int64_t>();
      batch.push_back(left_[static_cast<std::size_t>(place)]);
      left_.erase(left_.begin() + place);
    }
    if (batch.empty()) return torch::nullopt;
    return batch;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  std::size_t rows_;
  std::optional<std::uint64_t> own_;
  std::mt19937_64 engine_;
  std::vector<std::size_t> left_;
};

// Returns the rows of each pass in order. `between` runs after each batch.
template <class Loader>
std::vector<Numbers64> rows_of_passes(Accelerator& accelerator, Loader& raw, int passes,
                                      const std::function<void(std::int64_t)>& between = {}) {
  auto [loader] = accelerator.prepare(raw);
  std::vector<Numbers64> all;
  for (int pass = 0; pass < passes; ++pass) {
    Numbers64& rows = all.emplace_back();
    for (auto& batch : loader) {
      const at::Tensor step = accelerator.gather_for_metrics(batch.target);
      for (std::int64_t i = 0; i < step.numel(); ++i) rows.push_back(step[i].item<std::int64_t>());
      if (between) between(batch.target.size(0));
    }
  }
  return all;
}

Numbers64 sorted(Numbers64 rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

Numbers64 all_rows(std::int64_t count) {
  Numbers64 rows(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

}  // namespace

TEST_CASE("randomness: all processes read one order, whatever their seeds and draws") {
  for (const int world : {2, 3}) {
    for (const std::size_t workers : {0, 2}) {
      debug_launcher(
          [=] {
            Accelerator accelerator;
            const std::int64_t rank = accelerator.process().process_index;
            for (const bool same_seed : {true, false}) {
              torch::manual_seed(same_seed ? 42 : 42 + rank);
              auto raw = shuffled_loader(27, workers);
              // Draws one number for each row, so that processes draw different amounts.
              const auto passes = rows_of_passes(
                  accelerator, raw, 3, [](std::int64_t rows) { torch::randn({rows * 5}); });
              for (const Numbers64& rows : passes) {
                require(sorted(rows) == all_rows(27),
                        str("every row once: ", rows.size(), " rows, same seed ", same_seed));
              }
              require(passes[0] != passes[1] && passes[1] != passes[2], "each pass is shuffled");
            }
          },
          world);
    }
  }
}

TEST_CASE("randomness: the order is that of LibTorch's loader in one process") {
  torch::manual_seed(7);
  auto plain = shuffled_loader(27);
  std::vector<Numbers64> expected;
  for (int pass = 0; pass < 3; ++pass) {
    Numbers64& rows = expected.emplace_back();
    for (auto& batch : *plain) {
      for (std::int64_t i = 0; i < batch.target.numel(); ++i)
        rows.push_back(batch.target[i].item<std::int64_t>());
    }
  }
  const double next = torch::rand({1}, at::kDouble).item<double>();
  for (const int world : {1, 2, 3}) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          const std::int64_t rank = accelerator.process().process_index;
          torch::manual_seed(7 + rank);
          auto raw = shuffled_loader(27);
          require(rows_of_passes(accelerator, raw, 3) == expected, "the order of one process");
          const double drawn = torch::rand({1}, at::kDouble).item<double>();
          if (rank == 0) return require(drawn == next, "rank 0 has drawn as a single process has");
          torch::manual_seed(7 + rank);
          shuffled_loader(27);  // LibTorch's sampler also draws an order when it is created
          require(drawn == torch::rand({1}, at::kDouble).item<double>(),
                  "other processes have drawn nothing");
        },
        world);
  }
}

TEST_CASE("randomness: the draws for each batch are the same in one process and in several") {
  const auto passes_of = [](Accelerator& accelerator) {
    const std::int64_t rank = accelerator.process().process_index;
    torch::manual_seed(5 + rank);
    auto raw = torch::data::make_data_loader(dataset_of(27, /*noisy=*/true), DrawingSampler(27),
                                             torch::data::DataLoaderOptions().batch_size(4));
    auto [loader] = accelerator.prepare(raw);
    std::vector<at::Tensor> passes;
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<at::Tensor> steps;
      for (auto& batch : loader) {
        steps.push_back(accelerator.gather_for_metrics(batch.data));
        torch::randn({batch.data.size(0) * 3});  // like a dropout layer
      }
      passes.push_back(at::cat(steps));
    }
    return passes;
  };
  std::vector<at::Tensor> expected;
  {
    Accelerator alone({.cpu = true});
    expected = passes_of(alone);
  }
  REQUIRE(expected.size() == 2);
  REQUIRE(expected[0].size(0) == 27);
  CHECK(!at::equal(expected[0], expected[1]));
  // Noise below 1 does not hide the row.
  for (const at::Tensor& pass : expected)
    CHECK(at::equal(std::get<0>(pass.floor().select(1, 0).sort()), at::arange(27.0)));
  for (const int world : {2, 3}) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          const auto got = passes_of(accelerator);
          // With several processes rank 0 draws only for its own batches, so that later passes
          // start from another state of its generator.
          require(at::equal(got[0], expected[0]), "the rows and the noise of one process");
          require(at::equal(std::get<0>(got[1].floor().select(1, 0).sort()), at::arange(27.0)),
                  "every row once");
          require(!at::equal(got[1], got[0]), "each pass is drawn anew");
        },
        world);
  }
}

TEST_CASE("randomness: a loader that draws with its batches has a new order in each pass") {
  Accelerator accelerator({.cpu = true});
  torch::manual_seed(3);
  auto raw = torch::data::make_data_loader(dataset_of(27), DrawingSampler(27),
                                           torch::data::DataLoaderOptions().batch_size(4));
  // Nothing else is drawn here.
  const auto passes = rows_of_passes(accelerator, raw, 3);
  for (const Numbers64& rows : passes) CHECK(sorted(rows) == all_rows(27));
  CHECK(passes[0] != passes[1]);
  CHECK(passes[1] != passes[2]);
  CHECK(passes[0] != passes[2]);
}

TEST_CASE("randomness: after an error of the dataset the process has its own generator again") {
  struct FailingLoader {
    std::vector<at::Tensor> made;
    auto begin() {
      torch::rand({1});
      if (made.empty()) throw std::runtime_error("no data");
      return made.begin();
    }
    auto end() { return made.end(); }
  };
  torch::manual_seed(3);
  torch::rand({1});
  const double next = torch::rand({1}, at::kDouble).item<double>();
  Accelerator accelerator({.cpu = true});
  FailingLoader failing;
  auto [loader] = accelerator.prepare(failing);
  torch::manual_seed(3);
  CHECK_THROWS_AS(loader.begin(), std::runtime_error);
  CHECK(torch::rand({1}, at::kDouble).item<double>() == next);
}

TEST_CASE("randomness: batches that still differ are detected in every process") {
  const auto code_and_text = [](Accelerator& accelerator, auto& raw) {
    try {
      rows_of_passes(accelerator, raw, 1);
    } catch (const Error& error) {
      return error.code() + "\n" + error.what();
    }
    return std::string("none");
  };
  for (const int world : {2, 3}) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          const std::int64_t rank = accelerator.process().process_index;
          const auto loader = [](std::uint64_t seed) {
            return torch::data::make_data_loader(dataset_of(27), DrawingSampler(27, seed),
                                                 torch::data::DataLoaderOptions().batch_size(4));
          };
          auto same = loader(1);
          require(code_and_text(accelerator, same) == "none", "engines of one seed");
          auto unlike = loader(1 + static_cast<std::uint64_t>(rank));
          const std::string error = code_and_text(accelerator, unlike);
          require(starts_with(error, "prepare.batches-differ"), error);
          require(error.find("make_loader") != std::string::npos, error);
          std::vector<torch::data::Example<>> batches;
          for (int i = 0; i < 4; ++i)
            batches.push_back({torch::full({4, 2}, 1.0 + 0.1 * static_cast<double>(rank)),
                               torch::zeros({4}, at::kLong)});
          require(starts_with(code_and_text(accelerator, batches), "prepare.batches-differ"),
                  "floating-point numbers");
          for (auto& batch : batches) batch.data = torch::full({4, 2}, 1.0 + 1e-6 * rank);
          require(code_and_text(accelerator, batches) == "none", "another rounding");
          for (auto& batch : batches) batch.target.fill_(rank);
          require(starts_with(code_and_text(accelerator, batches), "prepare.batches-differ"),
                  "whole numbers");
        },
        world);
  }
}

TEST_CASE("randomness: with debug the batches of every step are compared") {
  debug_launcher([] {
    for (const bool debug : {false, true}) {
      Accelerator accelerator({.debug = debug});
      const std::int64_t rank = accelerator.process().process_index;
      std::vector<at::Tensor> batches;  // the third step differs
      for (int i = 0; i < 8; ++i) batches.push_back(torch::full({4}, i == 5 ? 1.0 + rank : 1.0));
      auto [loader] = accelerator.prepare(batches);
      int steps = 0;
      const std::string code = code_of([&] {
        for (auto& batch : loader) steps += batch.size(0) == 4;
      });
      require(code == (debug ? "prepare.batches-differ" : "none"), code);
      require(steps == (debug ? 2 : 4), str(steps, " steps"));
      std::vector<at::Tensor> same(5, torch::ones({4}));
      auto [even] = accelerator.prepare(same);
      steps = 0;
      for (auto& batch : even) steps += batch.size(0) == 4;
      require(steps == 3, "the steps with a filled last step");
    }
  });
}

TEST_CASE("randomness: loaders of all kinds work inside join_uneven_inputs") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        const std::int64_t rank = accelerator.process().process_index;
        std::vector<at::Tensor> batches(4, torch::ones({2}));
        auto [loader] = accelerator.prepare(batches);
        torch::manual_seed(rank);
        auto raw = shuffled_loader(24);
        {
          // A pass over a container needs no collective, so a process may begin one after other
          // processes have finished.
          auto scope = accelerator.join_uneven_inputs({.even_batches = false});
          int steps = 0;
          for (int pass = 0; pass < (rank == 0 ? 3 : 1); ++pass) {
            for (auto& batch : loader) steps += batch.size(0) == 2;
          }
          require(steps == (rank == 0 ? 6 : 1), "the first process has one more each time");
        }
        auto scope = accelerator.join_uneven_inputs();
        for (const Numbers64& rows : rows_of_passes(accelerator, raw, 2))
          require(sorted(rows) == all_rows(24), "every row once");
      },
      3);
}

TEST_CASE("randomness: set_seed gives the processes one seed, or one for each") {
  debug_launcher(
      [] {
        Accelerator accelerator;
        const std::int64_t rank = accelerator.process().process_index;
        const auto draw_on_all_ranks = [&] {
          return accelerator.gather(torch::rand({1}, at::kDouble));
        };
        set_seed(11);
        const at::Tensor same = draw_on_all_ranks();
        require((same == same[0]).all().item<bool>(), "one seed");
        set_seed(11, /*device_specific=*/true);
        const at::Tensor own = draw_on_all_ranks();
        require(own[0].item<double>() == same[0].item<double>(), "rank 0 has the seed itself");
        torch::manual_seed(static_cast<std::uint64_t>(11 + rank));
        require(at::equal(draw_on_all_ranks(), own), "the others have it plus their rank");
        require(own[0].item<double>() != own[1].item<double>() &&
                    own[1].item<double>() != own[2].item<double>(),
                "one seed each");
      },
      3);
}

}  // namespace prepare_randomness_test
