// Accelerate's test_utils/scripts/test_distributed_data_loop.py (1.15), assert by assert, in two
// processes. The comments name its functions.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <set>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_accelerate_data_loop_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

using Sizes = std::vector<std::int64_t>;

template <class Loader>
Sizes batch_sizes(Loader& loader) {
  Sizes sizes;
  for (auto& batch : loader) sizes.push_back(batch.size(0));
  return sizes;
}

void require_batch_sizes(Accelerator& accelerator, std::int64_t rows, std::int64_t batch_size,
                         const Sizes& first, const Sizes& second) {
  auto raw = make_loader(NumberRows{rows}, {.batch_size = batch_size});
  auto [loader] = accelerator.prepare(raw);
  require(batch_sizes(loader) == (accelerator.is_main_process() ? first : second),
          str(rows, " rows in batches of ", batch_size));
}

}  // namespace

TEST_CASE("data loop: by default all processes have equally many batches of one size") {
  // test_default_ensures_even_batch_sizes
  debug_launcher([] {
    Accelerator accelerator;
    require_batch_sizes(accelerator, 3, 1, {1, 1}, {1, 1});
    require_batch_sizes(accelerator, 7, 2, {2, 2}, {2, 2});
  });
}

TEST_CASE("data loop: without even_batches the last step has the remaining rows") {
  // test_can_disable_even_batches
  debug_launcher([] {
    Accelerator accelerator({.dataloader_config = {.even_batches = false}});
    require_batch_sizes(accelerator, 3, 1, {1, 1}, {1});
    require_batch_sizes(accelerator, 7, 2, {2, 2}, {2, 1});
  });
}

TEST_CASE("data loop: processes with unequal numbers of batches are joined") {
  // test_can_join_uneven_inputs
  debug_launcher([] {
    Accelerator accelerator({.dataloader_config = {.even_batches = false}});
    torch::nn::Linear net(1, 1);
    auto raw = make_loader(NumberRows{3}, {.batch_size = 1});
    auto [model, loader] = accelerator.prepare(net, raw);
    std::vector<int> indices;
    {
      const auto guard = accelerator.join_uneven_inputs(model);
      int index = 0;
      for (auto& batch : loader) {
        accelerator.backward(model(batch.to(at::kFloat).view({-1, 1})).sum());
        indices.push_back(index++);
      }
    }
    accelerator.wait_for_everyone();
    require(
        indices == (accelerator.is_main_process() ? std::vector<int>{0, 1} : std::vector<int>{0}),
        "the batches of a process");
  });
}

TEST_CASE("data loop: join_uneven_inputs overrides even_batches in its scope, for any loader") {
  // test_join_can_override_even_batches, test_join_can_override_for_mixed_type_dataloaders
  debug_launcher([] {
    Accelerator accelerator;
    torch::nn::Linear net(1, 1);
    auto train = make_loader(NumberRows{3}, {.batch_size = 1});
    auto valid = make_loader(NumberRows{3}, {.batch_size = 1});
    auto stream = make_loader(NumberStream{3}, {.batch_size = 1});
    auto [model, train_loader, valid_loader, stream_loader] =
        accelerator.prepare(net, train, valid, stream);
    const Sizes even = {1, 1}, uneven = accelerator.is_main_process() ? Sizes{1, 1} : Sizes{1};
    {
      const auto guard = accelerator.join_uneven_inputs({.even_batches = false}, model);
      require(batch_sizes(train_loader) == uneven, "the first loader in the scope");
      require(batch_sizes(valid_loader) == uneven, "the second loader in the scope");
      require(batch_sizes(stream_loader) == uneven, "a stream in the scope");
    }
    require(batch_sizes(train_loader) == even, "the first loader after the scope");
    require(batch_sizes(valid_loader) == even, "the second loader after the scope");
    require(batch_sizes(stream_loader) == even, "a stream after the scope");
  });
}

namespace {

constexpr std::int64_t kElements = 22;

struct Augmented {
  std::int64_t size() const { return kElements; }
  TensorDict get(std::int64_t row) const {
    return {{"index", torch::tensor(row)},
            {"label", torch::tensor(row % 2)},
            {"random_augmentation", torch::rand({1})}};
  }
};

}  // namespace

TEST_CASE("data loop: every row comes once, with workers and in any order") {
  // test_data_loader
  const auto backwards = [](std::int64_t rows, std::uint64_t, std::int64_t) {
    std::vector<std::int64_t> order;
    for (std::int64_t row = rows - 1; row >= 0; --row) order.push_back(row);
    return order;
  };
  const LoaderOptions plain{.batch_size = 4, .num_workers = 4};
  LoaderOptions shuffled = plain, ordered = plain;
  shuffled.shuffle = true;
  ordered.order = backwards;
  for (const LoaderOptions& options : {plain, shuffled, ordered}) {
    debug_launcher([&] {
      Accelerator accelerator;
      torch::manual_seed(accelerator.process().process_index);
      auto raw = make_loader(Augmented{}, options);
      auto [loader] = accelerator.prepare(raw);
      std::multiset<std::int64_t> seen;
      for (auto& batch : loader) {
        const at::Tensor index = accelerator.gather_for_metrics(batch.at("index"));
        for (std::int64_t i = 0; i < index.size(0); ++i) seen.insert(index[i].item<std::int64_t>());
      }
      require(seen.size() == kElements, "a row is repeated or missing");
      require(std::set<std::int64_t>(seen.begin(), seen.end()).size() == kElements,
              "a row is repeated");
    });
  }
}

namespace {

// Takes the state of a loader at its third batch and reads the remaining batches. Then loads the
// state, and compares the batches that follow with the batches that were read before.
template <class Rows>
void require_resumed(bool by_checkpoint) {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    Accelerator accelerator;
    torch::manual_seed(accelerator.process().process_index);
    const std::int64_t rows = 32 * accelerator.process().num_processes;
    auto raw = make_loader(Rows{rows}, {.batch_size = 4, .shuffle = MapDataset<Rows>});
    auto [loader] = accelerator.prepare(raw);
    const auto gathered = [&](const std::vector<at::Tensor>& batches) {
      return accelerator.gather(at::stack(batches));
    };
    constexpr int kSaved = 2;
    LoaderState state;
    std::vector<at::Tensor> untrained, resumed;
    int step = 0;
    for (auto& batch : loader) {
      if (step > kSaved) untrained.push_back(batch.clone());
      if (step == kSaved && by_checkpoint) accelerator.save_state(folder.path() / "saved");
      if (step == kSaved && !by_checkpoint) state = loader->state();
      ++step;
    }
    if (by_checkpoint) {
      accelerator.load_state(folder.path() / "saved");
    } else {
      loader->load_state(state);
    }
    for (auto& batch : loader) resumed.push_back(batch.clone());
    require(untrained.size() == 5 && resumed.size() == 5, "the number of batches after resuming");
    require(at::equal(gathered(untrained), gathered(resumed)), "the batches after resuming");
  });
}

}  // namespace

TEST_CASE("data loop: a loader continues after the batch at which its state was taken") {
  // test_stateful_dataloader, with a stream and with rows by number
  require_resumed<NumberStream>(false);
  require_resumed<NumberRows>(false);
}

TEST_CASE("data loop: a loader continues after the batch at which save_state was called") {
  // test_stateful_dataloader_save_state, with a stream and with rows by number
  require_resumed<NumberStream>(true);
  require_resumed<NumberRows>(true);
}

}  // namespace ported_accelerate_data_loop_test
