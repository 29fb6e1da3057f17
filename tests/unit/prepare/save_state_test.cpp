// save_state and load_state: a loop that stops and continues gives the same bits as one that never
// stopped.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/detail/lion.h"
#include "hasten/optim/metric_scheduler.h"
#include "unit/code_of.h"
#include "unit/locking_process.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_save_state_test {

using namespace hasten;
namespace fs = std::filesystem;
namespace optim = torch::optim;
using namespace hasten::save_state_loop;

TEST_CASE("save_state: a run that stops after any step continues bit for bit") {
  CHECK(differing_stops({}, kEveryStep) == Steps{});
}

TEST_CASE("save_state: loaders of LibTorch continue at the batch and with the numbers they had") {
  CHECK(differing_stops({.foreign_loader = true}, kEveryStep) == Steps{});
  CHECK(differing_stops({.foreign_loader = true, .accumulation = 1}, {3, 11, 12}) == Steps{});
}

TEST_CASE("save_state: a run may stop several times") {
  const TemporaryDirectory none, project;
  const RunResult straight = *train({}, none.path());
  for (const std::int64_t stop : {2, 3, 8, 11}) train({}, project.path(), stop);
  CHECK(same_bits(straight, *train({}, project.path())));
  const auto kept = checkpoints(project.path() / "checkpoints", "checkpoint_");
  REQUIRE(kept.size() == 2);  // total_limit is 2
  CHECK(kept[0].filename() == "checkpoint_2");
  CHECK(kept[1].filename() == "checkpoint_3");
}

TEST_CASE("save_state: every optimizer continues, with several groups and changed options") {
  const auto groups_of = [](NetImpl& net, auto first, auto second) {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(net.first->parameters(), std::make_unique<decltype(first)>(first));
    std::vector<at::Tensor> rest = net.second->parameters();
    for (const at::Tensor& each : net.norm->parameters()) rest.push_back(each);
    groups.emplace_back(rest, std::make_unique<decltype(second)>(second));
    return groups;
  };
  const std::vector<std::pair<const char*, MakeOptimizer>> all = {
      {"SGD",
       [&](NetImpl& net) {
         return std::make_unique<optim::SGD>(
             groups_of(net, optim::SGDOptions(0.05).momentum(0.9),
                       optim::SGDOptions(0.02).momentum(0.8).nesterov(true)),
             optim::SGDOptions(0.05));
       }},
      {"Adam",
       [&](NetImpl& net) {
         return std::make_unique<optim::Adam>(groups_of(net, optim::AdamOptions(0.01).amsgrad(true),
                                                        optim::AdamOptions(0.02).betas({0.8, 0.9})),
                                              optim::AdamOptions(0.01));
       }},
      {"RMSprop",
       [](NetImpl& net) {
         return std::make_unique<optim::RMSprop>(
             net.parameters(), optim::RMSpropOptions(0.01).momentum(0.9).centered(true));
       }},
      {"Adagrad",
       [](NetImpl& net) {
         return std::make_unique<optim::Adagrad>(net.parameters(), optim::AdagradOptions(0.05));
       }},
      {"Lion", [&](NetImpl& net) {
         return std::make_unique<Lion>(groups_of(net, LionOptions(1e-3), LionOptions(2e-3)),
                                       LionOptions(1e-3));
       }}};
  for (const auto& [name, make] : all) {
    CAPTURE(name);
    CHECK(differing_stops({.make_optimizer = make}, {5, 8}) == Steps{});
  }
}

TEST_CASE("save_state: a scheduler of LibTorch, whose rates depend on the ones before, continues") {
  const MakeScheduler halving = [](optim::Optimizer& optimizer) {
    return std::make_shared<optim::StepLR>(optimizer, 3, 0.5);
  };
  CHECK(differing_stops({.make_scheduler = halving}, {2, 3, 7}) == Steps{});
}

TEST_CASE("save_state: the options of an optimizer are those of the checkpoint") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.5));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  auto& options = static_cast<optim::SGDOptions&>(sgd.param_groups()[0].options());
  options.momentum(0.1 + 0.2).weight_decay(1e-300);
  accelerator.save_state(folder.path() / "state");
  options.lr(3).momentum(0).weight_decay(1).nesterov(true);
  CHECK(accelerator.load_state(folder.path() / "state"));
  CHECK(options.lr() == 0.1);
  CHECK(options.momentum() == 0.1 + 0.2);
  CHECK(options.weight_decay() == 1e-300);
  CHECK_FALSE(options.nesterov());
}

namespace {

struct TwinsImpl : torch::nn::Module {
  TwinsImpl() {
    torch::manual_seed(5);
    first = register_module("model_0", torch::nn::Linear(2, 2));
    second = register_module("model_1", torch::nn::Linear(2, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Twins);

}  // namespace

TEST_CASE("save_state: a module of the first model may be called model_1") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  // Makes a step for each input, and returns the parameters.
  const auto run_steps = [&](const std::vector<double>& inputs, bool resumes) {
    Twins twins;
    torch::nn::Linear head(2, 1);
    std::vector<at::Tensor> parameters = twins->parameters();
    for (const at::Tensor& each : head->parameters()) parameters.push_back(each);
    optim::SGD sgd(parameters, optim::SGDOptions(0.01).momentum(0.9));
    Accelerator accelerator({.cpu = true});
    auto [model] = accelerator.prepare(twins);  // the first model
    auto [top, optimizer] = accelerator.prepare(head, sgd);
    if (resumes) accelerator.load_state(state);
    for (const double input : inputs) {
      const auto guard = accelerator.accumulate(model, top);
      accelerator.backward(top(model(at::full({1, 2}, input))).sum());
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!resumes) accelerator.save_state(state);
    return parameters;
  };
  const std::vector<at::Tensor> straight = run_steps({1, 2, 3}, false);
  run_steps({1, 2}, false);
  const std::vector<at::Tensor> resumed = run_steps({3}, true);
  for (std::size_t i = 0; i < straight.size(); ++i) CHECK(at::equal(resumed[i], straight[i]));

  Twins twins;
  torch::nn::Linear head(2, 1);
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model] = accelerator.prepare(twins);
  auto [top] = accelerator.prepare(head);
  const auto guard = accelerator.accumulate(model, top);
  accelerator.backward(top(model(at::ones({1, 2}))).sum());
  CHECK(accelerator.open_windows().gradients.size() == 6);
}

TEST_CASE("save_state: objects have the numbers of the order in which they are written") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  torch::nn::Linear first(2, 2), second(3, 3), third(4, 4);
  optim::SGD of_first(first->parameters(), optim::SGDOptions(0.1)),
      of_second(second->parameters(), optim::SGDOptions(0.2));
  Accelerator accelerator({.cpu = true});
  auto handles = accelerator.prepare(first, of_first, second, of_second, third);
  accelerator.save_state(state);
  CHECK(load_safetensors(state / "model.safetensors").at("bias").size(0) == 2);
  CHECK(load_safetensors(state / "model_1.safetensors").at("bias").size(0) == 3);
  CHECK(load_safetensors(state / "model_2.safetensors").at("bias").size(0) == 4);
  const std::string json = read_file(state / "accelerator_state.json");
  CHECK(json.find("\"lr\": 0.1") < json.find("\"lr\": 0.2"));
}

TEST_CASE("save_state: rotation keeps the checkpoint with the best metric") {
  for (const bool greater : {false, true}) {
    CAPTURE(greater);
    const TemporaryDirectory project;
    using Names = std::vector<std::string>;
    const auto names = [&] {
      Names found;
      for (const fs::path& each : checkpoints(project.path() / "checkpoints", kProjectPrefix))
        found.push_back(each.filename().string());
      return found;
    };
    // Continues the run of the project, and saves with each of these metrics.
    const auto save_with = [&](const std::vector<double>& metrics, bool asynchronous) {
      Accelerator accelerator({.cpu = true,
                               .project_config = {.project_dir = project.path(),
                                                  .automatic_checkpoint_naming = true,
                                                  .total_limit = 2,
                                                  .greater_is_better = greater}});
      Net net;
      auto [model] = accelerator.prepare(net);
      accelerator.load_state();
      for (const double metric : metrics) {
        accelerator.save_state(
            {}, {.asynchronous = asynchronous, .metric = greater ? -metric : metric});
      }
      accelerator.wait_for_save();
    };
    save_with({3, 1, 2, std::nan("")}, false);
    CHECK(names() == Names{"checkpoint_1", "checkpoint_3"});
    save_with({5}, true);
    CHECK(names() == Names{"checkpoint_1", "checkpoint_4"});
    save_with({0.5, 2}, true);
    CHECK(names() == Names{"checkpoint_5", "checkpoint_6"});
  }
}

TEST_CASE("save_state: a save that fails does not replace the best checkpoint") {
  const TemporaryDirectory project;
  Accelerator accelerator(
      {.cpu = true,
       .project_config = {
           .project_dir = project.path(), .automatic_checkpoint_naming = true, .total_limit = 1}});
  Net net;
  auto [model] = accelerator.prepare(net);
  const fs::path best = accelerator.save_state({}, {.metric = 2.0});
  CheckpointHook fails = accelerator.register_save_state_pre_hook(
      [](const fs::path&) { throw std::runtime_error("the hook fails"); });
  CHECK_THROWS_AS(accelerator.save_state({}, {.metric = 1.0}), std::runtime_error);
  fails.remove();
  const fs::path newest = accelerator.save_state({}, {.metric = 3.0});
  CHECK(fs::exists(best));
  CHECK(fs::exists(newest));
  CHECK(code_of([&] { accelerator.save_state(project.path() / "own", {.metric = 1.0}); }) ==
        "checkpoint.metric");
}

TEST_CASE("save_state: a failed save does not count if its folder has its name already") {
  const TemporaryDirectory project;
  const fs::path all = project.path() / "checkpoints";
  Accelerator accelerator(
      {.cpu = true,
       .project_config = {
           .project_dir = project.path(), .automatic_checkpoint_naming = true, .total_limit = 1}});
  Net net;
  auto [model] = accelerator.prepare(net);
  const fs::path best = accelerator.save_state({}, {.metric = 2.0});
  CheckpointHook fails = accelerator.register_save_state_pre_hook(
      [](const fs::path&) { throw std::runtime_error("the hook fails"); });
  CHECK_THROWS_AS(accelerator.save_state({}, {.metric = 1.0}), std::runtime_error);
  fails.remove();
  // As after a save that fails once the folder has its name.
  fs::copy(best, all / "checkpoint_1", fs::copy_options::recursive);
  accelerator.save_state({}, {.metric = 3.0});
  CHECK(fs::exists(best));
  CHECK(fs::exists(all / "checkpoint_1"));
}

TEST_CASE("save_state: a project in which another job saves is refused, but can be loaded") {
  const TemporaryDirectory project;
  const fs::path all = project.path() / "checkpoints";
  const AcceleratorOptions options{
      .cpu = true,
      .project_config = {
          .project_dir = project.path(), .automatic_checkpoint_naming = true, .total_limit = 1}};
  Net net;
  {
    Accelerator accelerator(options);
    auto [model] = accelerator.prepare(net);
    accelerator.save_state();
    CHECK(fs::exists(project.path() / kLockFile));
  }
  CHECK_FALSE(fs::exists(project.path() / kLockFile));
  const LockingProcess other(project.path());
  fs::copy(all / "checkpoint_0", all / "checkpoint_1", fs::copy_options::recursive);
  Accelerator accelerator(options);
  auto [model] = accelerator.prepare(net);
  CHECK(code_of([&] { accelerator.save_state(); }) == "io.folder-in-use");
  CHECK(accelerator.load_state());
  CHECK(accelerator.save_state(project.path() / "own") == project.path() / "own");
  CHECK(checkpoints(all, kProjectPrefix).size() == 2);
}

TEST_CASE("save_state: hooks write into the checkpoint, and can be removed") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  std::string read;
  CheckpointHook writes = accelerator.register_save_state_pre_hook(
      [](const fs::path& in) { write_file_atomically(in / "own.txt", "mine"); });
  accelerator.register_load_state_pre_hook(
      [&](const fs::path& in) { read += read_file(in / "own.txt"); });
  const fs::path first = accelerator.save_state(folder.path() / "first");
  accelerator.load_state(first);
  CHECK(read == "mine");
  fs::remove(first / "own.txt");
  CHECK(code_of([&] { accelerator.load_state(first); }) == "checkpoint.missing-file");
  writes.remove();
  CHECK_FALSE(fs::exists(accelerator.save_state(folder.path() / "second") / "own.txt"));
  CHECK(read == "mine");
}

TEST_CASE("save_state: a hook may remove itself and register others while it runs") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  std::vector<CheckpointHook> hooks;
  std::weak_ptr<int> captured;
  std::vector<std::string> calls;
  {
    const auto value = std::make_shared<int>(1);
    captured = value;
    hooks.push_back(accelerator.register_save_state_pre_hook([&, value](const fs::path&) {
      hooks[0].remove();
      calls.emplace_back(captured.expired() ? "without its captures" : "once");
      for (int i = 0; i < 8; ++i) {
        accelerator.register_save_state_pre_hook(
            [&](const fs::path&) { calls.emplace_back("registered"); });
      }
    }));
  }
  accelerator.save_state(folder.path() / "first");
  CHECK(calls == std::vector<std::string>{"once"});
  CHECK(captured.expired());
  accelerator.save_state(folder.path() / "second");
  CHECK(calls.size() == 9);
}

TEST_CASE("save_state: a scheduler that follows a metric is registered as it is") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  Net net;
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
  const auto plateau = get_metric_scheduler(SchedulerType::reduce_lr_on_plateau, sgd);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  accelerator.register_for_checkpointing(*plateau);
  plateau->step(1.0);
  const auto before = plateau->state();
  accelerator.save_state(folder.path() / "state");
  for (int i = 0; i < 30; ++i) plateau->step(2.0);
  REQUIRE(plateau->state() != before);
  accelerator.load_state(folder.path() / "state");
  CHECK(plateau->state() == before);
  CHECK(sgd.param_groups()[0].options().get_lr() == 0.1);
}

TEST_CASE("save_state: the names and the folder of a project are checked") {
  const TemporaryDirectory project;
  CHECK(code_of([] { Accelerator({.cpu = true}).save_state(); }) == "checkpoint.no-folder");
  CHECK(code_of([&] {
          Accelerator({.cpu = true, .project_config = {.automatic_checkpoint_naming = true}});
        }) == "checkpoint.project-dir");
  CHECK(code_of([&] { Accelerator({.cpu = true, .project_config = {.keep_every = -1}}); }) ==
        "checkpoint.keep-every");
  CHECK(code_of([&] { Accelerator({.cpu = true, .project_config = {.total_limit = 0}}); }) ==
        "checkpoint.total-limit");
  const AcceleratorOptions options{
      .cpu = true,
      .project_config = {.project_dir = project.path(), .automatic_checkpoint_naming = true}};
  Accelerator first(options);
  CHECK_FALSE(first.load_state());
  CHECK(first.save_state() == project.path() / "checkpoints" / "checkpoint_0");
  CHECK(first.save_state().filename() == "checkpoint_1");
  Accelerator second(options);
  CHECK(code_of([&] { second.save_state(); }) == "checkpoint.project-in-use");
  CHECK(second.load_state());
  CHECK(second.save_state().filename() == "checkpoint_2");
  // Loading an older checkpoint and saving again renames the later checkpoints.
  Accelerator third(options);
  third.load_state(project.path() / "checkpoints" / "checkpoint_0");
  CHECK(third.save_state().filename() == "checkpoint_1");
  CHECK(fs::exists(project.path() / "checkpoints" / "abandoned-checkpoint_2"));
}

TEST_CASE("save_model: the weights of a model go to a folder or a file, and come back") {
  const TemporaryDirectory folder;
  const Accelerator accelerator({.cpu = true});
  Net saved, loaded;
  torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : saved->parameters()) parameter.add_(1);
  accelerator.save_model(saved, folder.path() / "model", {.max_shard_size = 200});
  CHECK(fs::exists(folder.path() / "model" / "model.safetensors.index.json"));
  accelerator.load_model(loaded, folder.path() / "model");
  CHECK(at::equal(saved->second->weight, loaded->second->weight));
  accelerator.save_model(*saved, folder.path() / "net.safetensors");
  accelerator.load_model(*loaded, folder.path() / "net.safetensors");
  CHECK(at::equal(saved->first->weight, loaded->first->weight));
}

}  // namespace prepare_save_state_test
