// save_state and load_state: a loop that stops and continues gives the same bits as one that never
// stopped, and a checkpoint that does not fit is refused before anything changes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/lion.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/forked.h"

namespace prepare_save_state_test {

using namespace hasten;
using namespace hasten::forked;
namespace fs = std::filesystem;
namespace optim = torch::optim;

namespace {

constexpr std::int64_t kRows = 44, kWidth = 6;

// A network with dropout and with a buffer that every pass changes.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(kWidth, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    second = register_module("second", torch::nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(norm(first(x)).relu(), 0.3, is_training()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

ColumnDataset own_rows() {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({kRows, kWidth});
  return ColumnDataset({{"x", x}, {"y", x.sum(1, true).sin()}});
}

// The same rows for LibTorch's loaders.
struct TorchRows : torch::data::datasets::Dataset<TorchRows> {
  torch::data::Example<> get(std::size_t row) override {
    const auto i = static_cast<std::int64_t>(row);
    return {x[i], y[i]};
  }
  torch::optional<std::size_t> size() const override { return kRows; }
  at::Tensor x = own_rows().columns().at("x"), y = own_rows().columns().at("y");
};

// A user's object: a mean over the steps.
struct Mean {
  TensorDict state_dict() const {
    return {{"mean", at::scalar_tensor(mean, at::kDouble)},
            {"steps", at::scalar_tensor(steps, at::kLong)}};
  }
  void load_state_dict(const TensorDict& state) {
    mean = state.at("mean").item<double>();
    steps = state.at("steps").item<std::int64_t>();
  }
  void add(double value) { mean += (value - mean) / static_cast<double>(++steps); }
  double mean = 0;
  std::int64_t steps = 0;
};

// Everything that the end of a run is compared by.
struct Ended {
  TensorDict weights;
  double mean = 0;
  std::vector<double> rates;
  at::Tensor drawn;
};

bool same_bits(const Ended& a, const Ended& b) {
  bool same = a.weights.size() == b.weights.size() && a.mean == b.mean && a.rates == b.rates &&
              at::equal(a.drawn, b.drawn);
  for (const auto& [name, tensor] : a.weights) same = same && at::equal(tensor, b.weights.at(name));
  return same;
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(NetImpl& net)>;
using MakeScheduler =
    std::function<std::shared_ptr<optim::LRScheduler>(optim::Optimizer& optimizer)>;

std::shared_ptr<optim::LRScheduler> cosine(optim::Optimizer& optimizer) {
  return get_scheduler("cosine", optimizer, {.num_warmup_steps = 2, .num_training_steps = 20});
}

// The settings that differ between the loops of the tests.
struct Loop {
  MakeOptimizer make_optimizer = [](NetImpl& net) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<AdamW>(net.parameters(), optim::AdamWOptions(1e-2));
  };
  MakeScheduler make_scheduler = cosine;
  bool foreign_loader = false;
  std::int64_t accumulation = 2;
  std::int64_t batch_size = 4;
  std::int64_t workers = 0;
  bool stops_at_micro_batch = false;  // `stop` counts micro-batches instead of steps
  bool asynchronous = false;
};

constexpr std::int64_t kSteps = 13;  // in the third epoch: 6 steps each, the last one of one batch

// Trains up to `stop`, saves there, and returns nothing; or to the end. Continues what is saved.
std::optional<Ended> train(const Loop& loop, const fs::path& project, std::int64_t stop = -1) {
  Accelerator accelerator(
      {.gradient_accumulation_steps = loop.accumulation,
       .cpu = true,
       .project_config = {
           .project_dir = project, .automatic_checkpoint_naming = true, .total_limit = 2}});
  Net net;
  const auto raw_optimizer = loop.make_optimizer(*net);
  const auto raw_scheduler = loop.make_scheduler(*raw_optimizer);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, *raw_optimizer, raw_scheduler);
  Mean mean;
  accelerator.register_for_checkpointing(mean);
  torch::manual_seed(7 + accelerator.process().process_index);
  const auto run = [&](auto& loader) {
    accelerator.load_state();
    while (optimizer.steps() < kSteps) {
      for (auto& batch : loader) {
        const auto guard = accelerator.accumulate(model);
        at::Tensor loss;
        if constexpr (requires { batch.data; }) {
          loss = torch::mse_loss(model(batch.data), batch.target);
        } else {
          loss = torch::mse_loss(model(batch.at("x")), batch.at("y"));
        }
        accelerator.backward(loss);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
        mean.add(loss.template item<double>());
        const bool in_window = !accelerator.sync_gradients();
        if (loop.stops_at_micro_batch ? mean.steps == stop
                                      : !in_window && optimizer.steps() == stop) {
          accelerator.save_state({}, {.asynchronous = loop.asynchronous});
          return false;
        }
        if (!in_window && optimizer.steps() == kSteps) break;
      }
    }
    return true;
  };
  bool ended;
  if (loop.foreign_loader) {
    auto raw = torch::data::make_data_loader(
        TorchRows().map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(static_cast<std::size_t>(loop.batch_size)));
    auto [loader] = accelerator.prepare(*raw);
    ended = run(loader);
  } else {
    LoaderOptions options{.batch_size = loop.batch_size, .shuffle = true};
    options.seed = 9;
    options.num_workers = loop.workers;
    auto raw = make_loader(own_rows(), options);
    auto [loader] = accelerator.prepare(raw);
    ended = run(loader);
  }
  if (!ended) return std::nullopt;
  Ended result{.weights = {}, .mean = mean.mean, .rates = {}, .drawn = at::rand({4})};
  for (const auto& item : net->named_parameters())
    result.weights[item.key()] = item.value().clone();
  for (const auto& item : net->named_buffers()) result.weights[item.key()] = item.value().clone();
  for (const auto& group : raw_optimizer->param_groups())
    result.rates.push_back(group.options().get_lr());
  return result;
}

std::vector<std::int64_t> stops_that_differ(const Loop& loop,
                                            const std::vector<std::int64_t>& stops) {
  const TemporaryDirectory none;
  const Ended straight = *train(loop, none.path());
  std::vector<std::int64_t> differing;
  for (const std::int64_t stop : stops) {
    const TemporaryDirectory project;
    CHECK_FALSE(train(loop, project.path(), stop));
    if (!same_bits(straight, *train(loop, project.path()))) differing.push_back(stop);
  }
  return differing;
}

using Steps = std::vector<std::int64_t>;
const Steps kEveryStep = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

}  // namespace

TEST_CASE("save_state: a run that stops after any step continues bit for bit") {
  CHECK(stops_that_differ({}, kEveryStep) == Steps{});
}

TEST_CASE("save_state: loaders of LibTorch continue at the batch and with the numbers they had") {
  CHECK(stops_that_differ({.foreign_loader = true}, kEveryStep) == Steps{});
  CHECK(stops_that_differ({.foreign_loader = true, .accumulation = 1}, {3, 11, 12}) == Steps{});
}

TEST_CASE("save_state: a run may stop several times") {
  const TemporaryDirectory none, project;
  const Ended straight = *train({}, none.path());
  for (const std::int64_t stop : {2, 3, 8, 11}) train({}, project.path(), stop);
  CHECK(same_bits(straight, *train({}, project.path())));
  const auto kept = checkpoints(project.path() / "checkpoints", "checkpoint_");
  REQUIRE(kept.size() == 2);  // total_limit
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
    CHECK(stops_that_differ({.make_optimizer = make}, {5, 8}) == Steps{});
  }
}

TEST_CASE("save_state: a scheduler of LibTorch, whose rates depend on the ones before, continues") {
  const MakeScheduler halving = [](optim::Optimizer& optimizer) {
    return std::make_shared<optim::StepLR>(optimizer, 3, 0.5);
  };
  CHECK(stops_that_differ({.make_scheduler = halving}, {2, 3, 7}) == Steps{});
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

TEST_CASE("save_state: a run that stops after any micro-batch of a window continues bit for bit") {
  // Epochs of 11 micro-batches: three windows of 3, and one of 2.
  const Steps all = {1, 2, 3, 4, 8, 10, 11, 12, 13, 21, 22, 23, 25};
  CHECK(stops_that_differ({.accumulation = 3, .workers = 2, .stops_at_micro_batch = true}, all) ==
        Steps{});
  CHECK(stops_that_differ({.foreign_loader = true, .accumulation = 4, .stops_at_micro_batch = true},
                          {1, 6, 11, 14}) == Steps{});
}

TEST_CASE("save_state: a window keeps the gradients of each kind of parameter") {
  const TemporaryDirectory folder;
  const auto make = [](torch::nn::Embedding& table, torch::nn::Linear& head) {
    torch::manual_seed(1);
    table = torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 3).sparse(true));
    head = torch::nn::Linear(3, 1);
  };
  const auto pass = [](Accelerator& accelerator, auto& table, auto& head, std::int64_t word) {
    const auto guard = accelerator.accumulate(table, head);
    accelerator.backward(head(table(at::tensor({word, word + 1}))).sum());
  };
  torch::nn::Embedding table{nullptr}, other_table{nullptr};
  torch::nn::Linear head{nullptr}, other_head{nullptr};
  make(table, head);
  Accelerator first({.gradient_accumulation_steps = 3, .cpu = true});
  auto [a, b] = first.prepare(table, head);
  pass(first, a, b, 1);
  pass(first, a, b, 2);
  first.save_state(folder.path() / "state");
  pass(first, a, b, 3);
  make(other_table, other_head);
  other_head->weight.mutable_grad() = at::ones_like(other_head->weight);  // is replaced
  Accelerator second({.gradient_accumulation_steps = 3, .cpu = true});
  auto [c, d] = second.prepare(other_table, other_head);
  second.load_state(folder.path() / "state");
  CHECK(other_table->weight.grad().is_sparse());
  CHECK_FALSE(other_table->weight.grad().is_coalesced());
  pass(second, c, d, 3);
  CHECK(second.sync_gradients());
  CHECK(at::equal(head->weight.grad(), other_head->weight.grad()));
  CHECK(at::equal(head->bias.grad(), other_head->bias.grad()));
  CHECK(at::equal(table->weight.grad().to_dense(), other_table->weight.grad().to_dense()));
}

TEST_CASE("save_state: a call between the last micro-batch's begin and its step is refused") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  const auto guard = accelerator.accumulate(model);  // and no backward pass
  CHECK(code_of([&] { accelerator.save_state(folder.path() / "state"); }) ==
        "checkpoint.open-window");
  CHECK_FALSE(fs::exists(folder.path() / "state"));
  optimizer.step();
  accelerator.save_state(folder.path() / "state");
  CHECK_FALSE(fs::exists(folder.path() / "state" / "gradients_0.safetensors"));
}

TEST_CASE("load_state: gradients that do not fit are refused before anything changes") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  accelerator.save_state(state);
  const auto code_with = [&](const TensorDict& gradients) {
    save_safetensors(state / "gradients_0.safetensors", gradients);
    write_manifest(state);
    return code_of([&] { accelerator.load_state(state); });
  };
  const at::Tensor before = net->second->weight.grad().clone();
  CHECK(code_with({{"second.weight", at::ones({2, 2})}}) == "checkpoint.gradients");
  CHECK(code_with({{"third.weight", at::ones({2, 2})}}) == "checkpoint.gradients");
  CHECK(code_with({{"second.weight:indices", at::full({2, 1}, 99, at::kLong)},
                   {"second.weight:values", at::ones({1})},
                   {"second.weight:is_coalesced", at::scalar_tensor(true, at::kBool)}}) ==
        "checkpoint.gradients");
  CHECK(at::equal(before, net->second->weight.grad()));
}

TEST_CASE("save_state: asynchronous saves continue bit for bit, also inside a window") {
  const Loop loop{.accumulation = 3, .stops_at_micro_batch = true, .asynchronous = true};
  CHECK(stops_that_differ(loop, {2, 3, 11, 13}) == Steps{});
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
  // The folder that is being written disappears before its files are.
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
  for (const char* const key : {"num_processes", "steps", "step_count", "optimizer_steps", "seed",
                                "epoch", "batch", "rows"}) {
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
  // Going back renames what came later.
  Accelerator third(options);
  third.load_state(project.path() / "checkpoints" / "checkpoint_0");
  CHECK(third.save_state().filename() == "checkpoint_1");
  CHECK(fs::exists(project.path() / "checkpoints" / "abandoned-checkpoint_2"));
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
  CHECK(second.load_state());  // the one before
  CHECK(fs::exists(one.string() + ".damaged"));
  fs::remove(zero / "random_state.safetensors");
  for (int attempt = 0; attempt < 2; ++attempt) {
    Accelerator third(options);
    CHECK(code_of([&] { third.load_state(); }) == "checkpoint.none-whole");
  }
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

TEST_CASE("save_state: two processes continue bit for bit, each with its own random numbers") {
  for (const bool foreign : {false, true}) {
    CAPTURE(foreign);
    const TemporaryDirectory none, project, results;
    // A window has two micro-batches: the run stops once inside one, and once after a step.
    const Loop loop{.foreign_loader = foreign,
                    .batch_size = 2,
                    .workers = foreign ? 0 : 1,
                    .stops_at_micro_batch = true,
                    .asynchronous = foreign};
    const auto in_two = [&](const fs::path& in, std::int64_t stop, const std::string& name) {
      debug_launcher([&] {
        const auto ended = train(loop, in, stop);
        if (!ended) return;
        // The ranks have the same weights, and the mean and the drawn numbers of their own.
        torch::manual_seed(0);
        TensorDict all = ended->weights;
        all["drawn"] = ended->drawn;
        all["mean"] = at::scalar_tensor(ended->mean, at::kDouble);
        const char* rank = std::getenv("RANK");
        save_safetensors(results.path() / (name + rank + ".safetensors"), all);
      });
    };
    in_two(none.path(), -1, "straight");
    for (const std::int64_t stop : {5, 18}) {
      in_two(project.path(), stop, "");
      in_two(project.path(), -1, "resumed");
      for (const char* rank : {"0", "1"}) {
        const auto read = [&](const std::string& name) {
          return load_safetensors(results.path() / (name + rank + ".safetensors"));
        };
        const TensorDict straight = read("straight"), resumed = read("resumed");
        for (const auto& [name, tensor] : straight) {
          CAPTURE(name);
          if (name == "mean" && rank[0] == '1') continue;  // that of the main process is saved
          CHECK(at::equal(tensor, resumed.at(name)));
        }
      }
      fs::remove_all(project.path() / "checkpoints");
    }
  }
}

TEST_CASE("load_state: a window of two processes is not the window of one") {
  const TemporaryDirectory project;
  const Loop loop{.batch_size = 2, .stops_at_micro_batch = true};
  debug_launcher([&] { train(loop, project.path(), 5); });
  CHECK(code_of([&] { train(loop, project.path()); }) == "checkpoint.window");
}

namespace {

// Numbers below 40, in parts of equal length.
struct PartedNumbers {
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

// Reads some batches, saves, and returns the next number of this process; or loads and returns it.
std::int64_t next_number(const fs::path& folder, bool loads, std::int64_t batches) {
  Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
  auto raw = make_loader(PartedNumbers(), {.batch_size = 2});
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

TEST_CASE("load_state: a stream that is read in parts continues in as many parts only") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  debug_launcher([&] { next_number(state, false, 3); });
  debug_launcher([&] {
    const std::int64_t first = next_number(state, true, 0);
    require(first == 6 || first == 26, str("the first number is ", first));
  });
  const auto refused = [&] {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
    auto raw = make_loader(PartedNumbers(), {.batch_size = 2});
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
  // Nor does a position in the whole stream continue in parts.
  debug_launcher([] {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = false}});
    auto raw = make_loader(PartedNumbers(), {.batch_size = 2});
    auto [loader] = accelerator.prepare(raw);
    require(code_of([&] { loader->load_state({.batch = 3, .rows = 12}); }) == "data.state",
            "a position in the whole stream");
    loader->load_state({.epoch = 1, .batch = 0, .rows = 0});
  });
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

TEST_CASE("save_state: an error in one process is an error in both, and writes nothing") {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    Accelerator accelerator({.cpu = true});
    Net net;
    auto [model] = accelerator.prepare(net);
    const bool is_main = accelerator.is_main_process();
    CheckpointHook hook = accelerator.register_save_state_pre_hook([&](const fs::path&) {
      if (!is_main) throw DataError("data.empty", {.what = "on purpose"});
    });
    require(code_of([&] { accelerator.save_state(folder.path() / "state"); }) == "data.empty",
            "both processes throw");
    require(!fs::exists(folder.path() / "state"), "nothing is written");
    hook.remove();
    accelerator.save_state(folder.path() / "state");
    accelerator.load_state(folder.path() / "state");
  });
  CHECK(fs::exists(folder.path() / "state" / kManifestFile));
}

}  // namespace prepare_save_state_test
