// A checkpoint that does not fit what is prepared is refused before anything changes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/loader.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/interrupted_replacement.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_load_state_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;
namespace optim = torch::optim;
using namespace hasten::save_state_loop;

TEST_CASE("load_state: other objects than before are refused before anything changes") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  Net net;
  AdamW adamw(net->parameters());
  {
    Accelerator accelerator({.cpu = true});
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    Mean mean;
    accelerator.register_for_checkpointing(mean);
    accelerator.save_state(state);
  }
  {
    Accelerator accelerator({.cpu = true});
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.other-objects");
  }
  Mean mean;
  {
    Accelerator accelerator({.cpu = true});
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    accelerator.register_for_checkpointing(mean);
    CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.optimizer-kind");
  }
  {
    Accelerator accelerator({.cpu = true});
    std::vector<optim::OptimizerParamGroup> groups = {
        optim::OptimizerParamGroup(net->first->parameters()),
        optim::OptimizerParamGroup(net->second->parameters())};
    AdamW two(groups);
    auto [model, optimizer] = accelerator.prepare(net, two);
    accelerator.register_for_checkpointing(mean);
    CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.optimizer-options");
  }
  CHECK(code_of([&] { Accelerator({.cpu = true}).load_state(folder.path() / "nowhere"); }) ==
        "checkpoint.manifest");
}

TEST_CASE(
    "load_state: numbers that are not whole or too large are refused before anything changes") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  Accelerator accelerator({.cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  const auto scheduler = cosine(adamw);
  auto rows = make_loader(own_rows(), {.batch_size = 4});
  auto prepared = accelerator.prepare(net, adamw, scheduler, rows);
  accelerator.save_state(state);
  const fs::path file = state / "accelerator_state.json";
  const std::string saved = read_file(file);
  const at::Tensor weight = net->first->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    net->first->weight.zero_();
  }
  for (const char* const key : {"num_processes", "threads", "steps", "step_count",
                                "optimizer_steps", "seed", "epoch", "batch", "rows"}) {
    CAPTURE(std::string(key));
    const std::string name = str('"', key, "\": ");
    const std::size_t begin = saved.find(name);
    REQUIRE(begin != std::string::npos);
    const std::size_t number = begin + name.size();
    for (const char* const value : {"1e300", "0.5", "\"1\""}) {
      write_file_atomically(
          file, saved.substr(0, number) + value + saved.substr(saved.find_first_of(",\n", number)));
      write_manifest(state);
      CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.state");
      CHECK_FALSE(net->first->weight.any().item<bool>());
    }
  }
  write_file_atomically(file, saved);
  write_manifest(state);
  accelerator.load_state(state);
  CHECK(at::equal(net->first->weight, weight));
}

TEST_CASE("load_state: another number of threads is reported") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  const int threads = at::get_num_threads();
  Accelerator accelerator({.cpu = true});
  Net net;
  auto prepared = accelerator.prepare(net);
  at::set_num_threads(2);
  accelerator.save_state(state);
  const auto log_of_load = [&] {
    std::string log;
    set_log_sink([&](std::string_view line) { log += line; });
    accelerator.load_state(state);
    set_log_sink({});
    return log;
  };
  CHECK(log_of_load() == "");
  at::set_num_threads(1);
  const std::string changed = "the number of threads of an operation is 1 and was 2";
  CHECK(log_of_load().find(changed) != std::string::npos);
  // A checkpoint of an earlier version does not have the number.
  const fs::path file = state / "accelerator_state.json";
  nlohmann::json json = nlohmann::json::parse(read_file(file));
  CHECK(json.erase("threads") == 1);
  write_file_atomically(file, json.dump());
  write_manifest(state);
  CHECK(log_of_load() == "");
  at::set_num_threads(threads);
}

TEST_CASE("load_state: a folder whose replacement was interrupted on another machine is found") {
  const TemporaryDirectory project;
  const fs::path state = project.path() / "state";
  Net net;
  Accelerator accelerator({.cpu = true});
  const auto model = accelerator.prepare(net);
  accelerator.save_state(state);
  interrupt_replacement(state);
  CHECK(accelerator.load_state(state / ""));
  interrupt_replacement(state);
  // Programs that name their folders ask whether there is one.
  const Accelerator next({.cpu = true, .project_config = {.project_dir = project.path()}});
  CHECK(fs::exists(state));
}

TEST_CASE("load_state: a project continues after a folder that is named with a slash at its end") {
  const TemporaryDirectory project;
  const AcceleratorOptions options{
      .cpu = true,
      .project_config = {.project_dir = project.path(), .automatic_checkpoint_naming = true}};
  Net net;
  fs::path last;
  {
    Accelerator first(options);
    const auto model = first.prepare(net);
    for (int saves = 0; saves < 3; ++saves) last = first.save_state();
  }
  CHECK(last.filename() == "checkpoint_2");
  Accelerator second(options);
  const auto model = second.prepare(net);
  CHECK(second.load_state(last / ""));
  CHECK(second.save_state().filename() == "checkpoint_3");
}

TEST_CASE("load_state: only damaged checkpoints are an error, never a new start") {
  const TemporaryDirectory project;
  const AcceleratorOptions options{
      .cpu = true,
      .project_config = {.project_dir = project.path(), .automatic_checkpoint_naming = true}};
  Net net;
  const auto prepared = [&](Accelerator& accelerator) { return accelerator.prepare(net); };
  Accelerator first(options);
  const auto model = prepared(first);
  const fs::path zero = first.save_state(), one = first.save_state();
  write_file_atomically(one / "model.safetensors", "not the weights");
  Accelerator second(options);
  const auto again = prepared(second);
  CHECK(second.load_state());  // loads the checkpoint before it
  CHECK(fs::exists(one.string() + ".damaged"));
  fs::remove(zero / "random_state.safetensors");
  for (int attempt = 0; attempt < 2; ++attempt) {
    Accelerator third(options);
    CHECK(code_of([&] { third.load_state(); }) == "checkpoint.none-whole");
  }
}

namespace {

// Numbers below 40, in parts of equal length.
struct ShardedNumbers {
  std::optional<at::Tensor> next() {
    return at < end ? std::optional(at::full({1}, at++)) : std::nullopt;
  }
  void rewind(std::int64_t) { at = begin; }
  void shard(std::int64_t num_shards, std::int64_t index) {
    begin = 40 * index / num_shards;
    end = 40 * (index + 1) / num_shards;
  }
  std::int64_t begin = 0, end = 40, at = 0;
};

// Reads some batches and saves the state, or loads the state. Returns the next number of this
// process.
std::int64_t next_number(const fs::path& folder, bool loads, std::int64_t batches) {
  Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
  auto raw = make_loader(ShardedNumbers(), {.batch_size = 2});
  auto [loader] = accelerator.prepare(raw);
  if (loads) {
    accelerator.load_state(folder);
  } else {
    for (auto at = loader.begin(); batches-- > 0;) {
      if (batches > 0) ++at;
    }
    accelerator.save_state(folder);
  }
  return (*loader.begin())[0].item<std::int64_t>();
}

}  // namespace

TEST_CASE("load_state: a sharded stream continues only with the same number of shards") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  debug_launcher([&] { next_number(state, false, 3); });
  debug_launcher([&] {
    const std::int64_t first = next_number(state, true, 0);
    require(first == 6 || first == 26, str("the first number is ", first));
  });
  const auto refused = [&] {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
    auto raw = make_loader(ShardedNumbers(), {.batch_size = 2});
    auto [loader] = accelerator.prepare(raw);
    const LoaderState before = loader->state();
    std::string text;
    try {
      accelerator.load_state(state);
    } catch (const DataError& error) {
      text = error.what();
    }
    require(text.find("expected a stream in 2 parts, one for each process") != std::string::npos,
            "got " + text);
    require(text.find(state.string()) != std::string::npos, "got " + text);
    require(loader->state() == before, "the position has changed");
  };
  refused();  // one process reads the whole stream
  debug_launcher(refused, 4);
  // A position in the whole stream cannot continue in parts either.
  debug_launcher([] {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
    auto raw = make_loader(ShardedNumbers(), {.batch_size = 2});
    auto [loader] = accelerator.prepare(raw);
    require(code_of([&] { loader->load_state({.batch = 3, .rows = 12}); }) == "data.state",
            "a position in the whole stream");
    loader->load_state({.epoch = 1, .batch = 0, .rows = 0});
  });
}

}  // namespace prepare_load_state_test
