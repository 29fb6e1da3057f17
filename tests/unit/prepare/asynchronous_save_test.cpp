// An asynchronous save writes the state at the time of the call, and a failed save does not lose an
// earlier checkpoint.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <optional>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/loader.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/address_space_limit.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_asynchronous_save_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;
namespace optim = torch::optim;
using namespace hasten::save_state_loop;

TEST_CASE("save_state: asynchronous saves continue bit for bit, also inside a window") {
  const Loop loop{.accumulation = 3, .stops_at_micro_batch = true, .asynchronous = true};
  CHECK(differing_stops(loop, {2, 3, 11, 13}) == Steps{});
}

TEST_CASE("save_state: an asynchronous save has the state of the call") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const auto step = [&] {
    accelerator.backward(model(at::ones({4, kWidth})).mean());
    optimizer.step();
    optimizer.zero_grad();
  };
  step();
  const at::Tensor weight = net->first->weight.detach().clone();
  const fs::path first = accelerator.save_state(folder.path() / "first", {.asynchronous = true});
  for (int i = 0; i < 20; ++i) step();
  accelerator.save_state(folder.path() / "second", {.asynchronous = true});  // waits for the first
  CHECK(fs::exists(first / kManifestFile));
  accelerator.load_state(first);  // waits for the second
  CHECK(fs::exists(folder.path() / "second" / kManifestFile));
  CHECK(at::equal(net->first->weight, weight));
  CHECK(optimizer.steps() == 1);
}

TEST_CASE(
    "save_state: an asynchronous save that fails leaves the one before, and a later one works") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  const fs::path state = accelerator.save_state(folder.path() / "state");
  // The hook creates a folder with the name of a checkpoint file, so that the file cannot be
  // written.
  const CheckpointHook hook = accelerator.register_save_state_pre_hook(
      [](const fs::path& staged) { fs::create_directory(staged / "model.safetensors"); });
  accelerator.save_state(state, {.asynchronous = true});
  CHECK(code_of([&] { accelerator.wait_for_save(); }) == "io.rename");
  verify_checkpoint(state);
  CheckpointHook(hook).remove();
  accelerator.save_state(state, {.asynchronous = true});
  accelerator.wait_for_save();
  accelerator.wait_for_save();  // there is none
  verify_checkpoint(state);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("save_state: an asynchronous save fails in both processes, and one after it works") {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    Net net;
    auto [model] = accelerator.prepare(net);
    {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model(at::ones({4, kWidth})).mean());
    }
    const bool is_main = accelerator.is_main_process();
    CheckpointHook hook = accelerator.register_save_state_pre_hook([&](const fs::path& staged) {
      if (!is_main) fs::create_directory(staged / "gradients_1.safetensors");
    });
    accelerator.save_state(folder.path() / "state", {.asynchronous = true});
    require(code_of([&] { accelerator.wait_for_save(); }) == "io.rename", "both processes throw");
    require(!fs::exists(folder.path() / "state"), "nothing is written");
    hook.remove();
    accelerator.save_state(folder.path() / "state", {.asynchronous = true});
    accelerator.wait_for_save();
    accelerator.load_state(folder.path() / "state");
  });
  CHECK(fs::exists(folder.path() / "state" / kManifestFile));
}

// AddressSanitizer and ThreadSanitizer need a large address space.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("save_state: both processes write at once if one has no memory for its copy") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  debug_launcher([&] {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    torch::nn::Linear large(4096, 4096);  // 64 MiB, and its gradient
    auto [model] = accelerator.prepare(large);
    {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model(at::ones({1, 4096})).mean());
    }
    {
      std::optional<AddressSpaceLimit> limit;
      if (!accelerator.is_main_process()) limit.emplace(std::size_t{32} << 20);
      accelerator.save_state(state, {.asynchronous = true});
    }
    require(fs::exists(state / kManifestFile), "the checkpoint is complete when the call returns");
    require(fs::exists(state / "gradients_1.safetensors"), "it has the gradients of both");
    accelerator.wait_for_save();
    accelerator.load_state(state);
  });
  verify_checkpoint(state);
}
#endif

}  // namespace prepare_asynchronous_save_test
