// Tests how a run handles bad input that appears only while it runs: metrics that are NaN or never
// reported, callbacks and hooks that throw, parameters that change, rows that cannot be read, and
// evaluation losses that are NaN. The tests of input that is refused before the first step are
// in any_module_test.cpp.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/metrics/classification.h"
#include "hasten/models/hooks.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_run_failures_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

// Returns the given scores, one for each evaluation, and then repeats the last one.
std::shared_ptr<EvalMetric> scores(std::vector<double> values) {
  auto at = std::make_shared<std::size_t>(0);
  return metric_from_function([values, at](const EvalPrediction&) -> Metrics {
    return {{"score", values[std::min((*at)++, values.size() - 1)]}};
  });
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Four epochs of two steps with an evaluation and a checkpoint each.
TrainingArguments four_evaluations(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.num_train_epochs = 4;
  args.eval_strategy = IntervalStrategy::epoch;
  args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "score";
  args.greater_is_better = true;
  return args;
}

TrainerParts parts_with(const std::shared_ptr<EvalMetric>& metric, std::string* log = nullptr) {
  return {.train_dataset = TrainerDataset(rows(8)),
          .eval_dataset = TrainerDataset(rows(4)),
          .compute_metrics = metric,
          .log_sink = [log](std::string_view line) {
            if (log != nullptr) *log += line;
          }};
}

}  // namespace

TEST_CASE("run failures: a metric that is NaN is never the best, and the run continues") {
  const Folder folder;
  TrainingArguments args = four_evaluations(folder.path);
  args.load_best_model_at_end = true;
  Trainer trainer(new_model(), args, parts_with(scores({kNan, 0.5, kNan, 0.25})));
  trainer.train();
  CHECK(trainer.state().best_metric == 0.5);
  CHECK(trainer.state().best_global_step == 4);
  CHECK(fs::path(trainer.state().best_model_checkpoint).filename() == "checkpoint-4");
  const std::vector<double> logged_scores = logged(trainer, "eval_score");
  CHECK(logged_scores.size() == 4);
  CHECK(std::isnan(logged_scores[0]));
  // The saved state is JSON, which has no NaN, but the score is read back as NaN.
  const TrainerState saved =
      TrainerState::from_file(folder.path / "checkpoint-8/trainer_state.json");
  CHECK(std::isnan(saved.log_history[2].at("eval_score")));
}

TEST_CASE("run failures: a metric that is always NaN saves no best model, and says so at the end") {
  const Folder folder;
  TrainingArguments args = four_evaluations(folder.path);
  args.load_best_model_at_end = true;
  std::string log;
  Trainer trainer(new_model(), args, parts_with(scores({kNan}), &log));
  trainer.train();
  CHECK(!trainer.state().best_metric);
  CHECK(trainer.state().best_model_checkpoint.empty());
  CHECK(contains(log, "load_best_model_at_end: no evaluation has given a finite score"));

  args = four_evaluations(folder.path);
  args.overwrite_output_dir = true;
  args.save_strategy = SaveStrategy::best;
  Trainer best_only(new_model(), args, parts_with(scores({kNan})));
  best_only.train();
  CHECK(!fs::exists(folder.path / "checkpoint-2"));
}

TEST_CASE("run failures: early stopping counts a metric that is NaN as no improvement") {
  const Folder folder;
  for (const auto& [values, steps] :
       {std::pair(std::vector<double>{kNan}, 4), std::pair(std::vector<double>{0.5, kNan}, 6),
        std::pair(std::vector<double>{kNan, 0.5, 0.6}, 8)}) {
    TrainingArguments args = four_evaluations(folder.path);
    args.save_strategy = SaveStrategy::no;
    TrainerParts parts = parts_with(scores(values));
    parts.callbacks = {std::make_shared<EarlyStoppingCallback>(2)};
    Trainer trainer(new_model(), args, std::move(parts));
    CHECK(trainer.train().global_step == steps);
  }
}

TEST_CASE(
    "run failures: a best metric that no evaluation reports is an error that lists the others") {
  const Folder folder;
  TrainingArguments args = four_evaluations(folder.path);
  args.metric_for_best_model = "f1";
  Trainer trainer(new_model(), args, parts_with(scores({0.5})));
  const std::string error = error_of([&] { trainer.train(); });
  CHECK(contains(error, "trainer.unknown-metric | metric_for_best_model: got eval_f1"));
  CHECK(contains(error, "eval_score"));
  // It is reported before training if the names of the scores are known.
  TrainerParts known = parts_with(std::make_shared<Accuracy>());
  CHECK(contains(error_of([&] { Trainer(new_model(), args, known); }),
                 "trainer.unknown-metric | metric_for_best_model: got eval_f1, expected one of "
                 "eval_loss, eval_runtime, eval_samples_per_second, eval_steps_per_second, "
                 "eval_accuracy"));
  args.eval_strategy = IntervalStrategy::no;  // the metric is not used
  CHECK_NOTHROW(Trainer(new_model(), args, known));
  // If no evaluation takes place, the run ends and reports that there is no best model.
  args = four_evaluations(folder.path);
  args.overwrite_output_dir = true;
  args.load_best_model_at_end = true;
  args.eval_delay = 100;
  std::string log;
  Trainer without(new_model(), args, parts_with(scores({0.5}), &log));
  CHECK(without.train().global_step == 8);
  CHECK(contains(log, "the model keeps the weights of the last step"));
}

namespace {

struct ThrowingCallback : TrainerCallback {
  explicit ThrowingCallback(std::string place) : place(std::move(place)) {}
  void at(const char* here) const {
    if (place == here) throw std::runtime_error("failed in " + place);
  }
  void on_train_begin(const TrainerEvent&, TrainerControl&) override { at("train_begin"); }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == 3) at("step_end");
  }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override {
    at("evaluate");
  }
  void on_save(const TrainerEvent&, TrainerControl&) override { at("save"); }
  void on_log(const TrainerEvent&, TrainerControl&, const Metrics&) override { at("log"); }
  void on_train_failed(const TrainerEvent&) override { ++failures; }
  std::string place;
  int failures = 0;
};

std::string text_of_failure(Trainer& trainer) {
  try {
    trainer.train();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("run failures: a callback that throws ends the run with its own exception") {
  for (const char* place : {"train_begin", "step_end", "evaluate", "save", "log"}) {
    const Folder folder;
    const auto failing = std::make_shared<ThrowingCallback>(place),
               other = std::make_shared<ThrowingCallback>("");
    TrainerParts parts = parts_with(scores({0.5}));
    parts.callbacks = {other, failing};
    const auto model = new_model(0);
    TrainingArguments args = four_evaluations(folder.path);
    Trainer trainer(model, args, std::move(parts));
    CHECK(text_of_failure(trainer) == str("failed in ", place));
    CHECK(other->failures == 1);
    CHECK(failing->failures == 1);
    CHECK(model->is_training());
    // The same Trainer can run again.
    failing->place.clear();
    if (fs::exists(folder.path)) fs::remove_all(folder.path);
    CHECK(trainer.train().global_step == 8);
  }
}

namespace {

struct ScaledIds : torch::nn::Module {
  ScaledIds() { weight = register_parameter("weight", at::ones({})); }
  at::Tensor forward(const at::Tensor& ids) { return weight * ids.to(at::kFloat); }
  at::Tensor weight;
};

}  // namespace

TEST_CASE("run failures: an evaluation that throws leaves the memory metrics of later stages") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 1;
  args.skip_memory_metrics = false;
  bool throws = true;
  Trainer trainer(new_model(), args, parts_with(metric_from_function([&](const EvalPrediction&) {
                    if (throws) throw std::runtime_error("no score");
                    return Metrics{{"score", 1}};
                  })));
  CHECK_THROWS_AS(trainer.evaluate(), std::runtime_error);
  throws = false;
  CHECK(trainer.train().metrics.contains("train_mem_cpu_alloc_delta"));
  CHECK(trainer.evaluate().contains("eval_mem_cpu_alloc_delta"));
}

TEST_CASE("run failures: memory that runs out in an evaluation is reported as such") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  Trainer trainer(
      new_model(), args,
      parts_with(metric_from_function([](const EvalPrediction&) { return Metrics{}; })));
  struct OutOfMemoryCallback : TrainerCallback {
    void on_prediction_step(const TrainerEvent&, TrainerControl&) override {
      throw std::bad_alloc();
    }
  };
  trainer.add_callback(std::make_shared<OutOfMemoryCallback>());
  CHECK(contains(error_of([&] { trainer.evaluate(); }),
                 "trainer.out-of-memory | out of memory in an evaluation batch"));
}

TEST_CASE("run failures: a callback may add and remove callbacks while the callbacks are called") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 1;
  struct CountingCallback : TrainerCallback {
    void on_train_begin(const TrainerEvent&, TrainerControl&) override { ++begun; }
    void on_train_end(const TrainerEvent&, TrainerControl&) override { ++ended; }
    int begun = 0, ended = 0;
  };
  struct AddingCallback : TrainerCallback {
    void on_train_begin(const TrainerEvent&, TrainerControl&) override {
      for (int i = 0; i < 100; ++i) trainer->add_callback(counts);
    }
    void on_epoch_begin(const TrainerEvent&, TrainerControl&) override {
      has_removed = trainer->remove_callback(self.lock());
    }
    Trainer* trainer = nullptr;
    std::weak_ptr<AddingCallback> self;
    bool has_removed = false;
    std::shared_ptr<CountingCallback> counts = std::make_shared<CountingCallback>();
  };
  const auto adds = std::make_shared<AddingCallback>();
  TrainerParts parts{.train_dataset = TrainerDataset(rows(8)), .callbacks = {adds}};
  Trainer trainer(new_model(), args, parts);
  adds->trainer = &trainer;
  adds->self = adds;
  trainer.train();
  CHECK(adds->counts->begun == 0);
  CHECK(adds->counts->ended == 100);
  CHECK(adds->has_removed);
  CHECK_FALSE(trainer.remove_callback(adds));
  CHECK(trainer.remove_callback(adds->counts));
}

TEST_CASE("run failures: an error of the module is logged with its step and its rows") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 3;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  std::string log;
  int calls = 0, calls_until_error = 2;
  TrainerParts parts = parts_with(nullptr, &log);
  parts.compute_loss = [&](torch::nn::Module& model, const TensorDict& batch) -> at::Tensor {
    if (++calls == calls_until_error) (void)at::ones({2, 3}).mm(at::ones({2, 3}));
    return model.parameters()[0].sum() * batch.at("labels").sum();
  };
  Trainer trainer(new_model(), args, parts);
  CHECK_THROWS_AS(trainer.train(), c10::Error);
  CHECK(contains(log,
                 "training step 2 failed on rows 4, 5, 6, 7: mat1 and mat2 shapes cannot be "
                 "multiplied (2x3 and 2x3)"));
  log.clear();
  calls = 0;
  CHECK_THROWS_AS(trainer.evaluate(), c10::Error);
  CHECK(contains(log,
                 "an evaluation or a prediction failed on row 3: mat1 and mat2 shapes cannot be "
                 "multiplied (2x3 and 2x3)"));
}

TEST_CASE("run failures: a hook that throws ends the run, and leaves the model in its mode") {
  const Folder folder;
  const auto model = std::make_shared<ScaledIds>();
  int calls = 0;
  TrainerParts parts = parts_with(nullptr);
  parts.compute_loss = [](ScaledIds& net, const TensorDict& batch) {
    return call_module(net, batch.at("input_ids")).mean();
  };
  Trainer trainer(model, short_run(folder.path), std::move(parts));
  {
    const HookHandle forward = register_forward_hook(
        *model, [&](torch::nn::Module&, const std::vector<at::Tensor>&, std::vector<at::Tensor>&) {
          if (++calls == 3) throw std::runtime_error("failed in a hook");
        });
    CHECK(text_of_failure(trainer) == "failed in a hook");
    CHECK(calls == 3);
    calls = 2;
    model->eval();
    CHECK_THROWS_WITH(trainer.evaluate(), "failed in a hook");
    CHECK(!model->is_training());
  }
  const HookHandle backward = watch_gradients(*model, [](const std::string&, const at::Tensor&) {
    throw std::runtime_error("failed in the backward pass");
  });
  CHECK(text_of_failure(trainer) == "failed in the backward pass");
}

TEST_CASE("run failures: a loss of an evaluation that is no number is refused by name") {
  const Folder folder;
  TrainerParts parts = parts_with(nullptr);
  parts.compute_loss = [](ScaledIds& net, const TensorDict& batch) {
    return net.forward(batch.at("labels"));
  };
  Trainer trainer(std::make_shared<ScaledIds>(), short_run(folder.path), std::move(parts));
  const std::string error = error_of([&] { trainer.evaluate(); });
  CHECK(contains(error, "trainer.loss-shape | the loss of a batch: got a tensor of 4 numbers"));
}

namespace {

using Pair = std::pair<at::Tensor, at::Tensor>;

struct Pairs {
  std::int64_t size() const { return count; }
  Pair get(std::int64_t index) const {
    if (index == failing) throw std::runtime_error("the file of this row is gone");
    return {at::sin(at::arange(4) + 3 * index), at::scalar_tensor(index % 3, at::kLong)};
  }
  std::int64_t count = 24, failing = -1;
};

struct EmptyStream {
  std::optional<Pair> next() { return std::nullopt; }
  void rewind(std::int64_t) {}
};

// A module that may change its parameters at its third forward pass.
struct ChangingNet : torch::nn::Module {
  explicit ChangingNet(std::function<void(ChangingNet&)> change = {}, std::int64_t width = 4)
      : change(std::move(change)) {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(4, width));
    second = register_module("second", torch::nn::Linear(width, 3));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (++calls == 3 && change) change(*this);
    return second(first(x));
  }
  void remove(const std::string& name) { unregister_module(name); }
  // The first function registers other tensors; the second one only assigns them to the members.
  void replace_registered() { first = replace_module("first", torch::nn::Linear(4, 4)); }
  void assign_members() {
    for (torch::nn::Linear* const layer : {&first, &second}) {
      (*layer)->weight = (*layer)->weight.detach().clone().requires_grad_();
      (*layer)->bias = (*layer)->bias.detach().clone().requires_grad_();
    }
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  std::function<void(ChangingNet&)> change;
  int calls = 0;
};

at::Tensor loss_of_pair(ChangingNet& net, const Pair& batch) {
  return torch::nn::functional::cross_entropy(net.forward(batch.first), batch.second);
}

// The error of a run of two epochs with six steps each.
std::string error_with(const std::shared_ptr<ChangingNet>& net, TrainerParts parts,
                       int workers = 0) {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.num_train_epochs = 2;
  args.max_steps = parts.train_dataset && parts.train_dataset.is_stream() ? 12 : -1;
  args.dataloader_num_workers = workers;
  if (parts.eval_dataset) args.eval_strategy = IntervalStrategy::epoch;
  if (!parts.train_dataset) parts.train_dataset = TrainerDataset(Pairs());
  if (!parts.compute_loss) parts.compute_loss = loss_of_pair;
  parts.log_sink = [](std::string_view) {};
  return error_of([&] { Trainer(net, args, std::move(parts)).train(); });
}

std::string error_after(const std::function<void(ChangingNet&)>& change) {
  return error_with(std::make_shared<ChangingNet>(change), {});
}

}  // namespace

TEST_CASE("run failures: parameters that are added, removed, replaced or released are an error") {
  const std::string added =
      error_after([](ChangingNet& net) { net.register_parameter("extra", at::ones({2})); });
  CHECK(contains(added, "trainer.parameters-changed | parameter extra at step 6: got a new"));
  const std::string removed = error_after([](ChangingNet& net) { net.remove("second"); });
  CHECK(contains(removed,
                 "trainer.parameters-changed | parameter second.bias at step 6: got a "
                 "module without it"));
  const std::string replaced = error_after([](ChangingNet& net) { net.replace_registered(); });
  CHECK(contains(replaced,
                 "trainer.parameters-changed | parameter first.bias at step 6: got "
                 "another tensor"));
  // The registered parameters no longer get gradients.
  const std::string assigned = error_after([](ChangingNet& net) { net.assign_members(); });
  CHECK(contains(assigned,
                 "trainer.loss-without-gradient | step 3: got a gradient for no parameter "
                 "of the module"));
  const auto released = std::make_shared<ChangingNet>(
      [](ChangingNet& net) { net.first->weight.requires_grad_(true); });
  released->first->weight.requires_grad_(false);
  CHECK(contains(error_with(released, {}),
                 "trainer.parameters-changed | parameter first.weight at "
                 "step 6: got requires_grad true"));
}

TEST_CASE("run failures: a parameter may be frozen during a run, but not all of them") {
  const auto net = std::make_shared<ChangingNet>();
  at::Tensor frozen;
  net->change = [&](ChangingNet& given) {
    frozen = given.second->weight.requires_grad_(false).clone();
  };
  CHECK(error_with(net, {}) == "none");
  CHECK(at::equal(net->second->weight, frozen));
  const std::string all = error_after([](ChangingNet& given) {
    for (at::Tensor& parameter : given.parameters()) parameter.requires_grad_(false);
  });
  CHECK(contains(all, "trainer.loss-without-gradient | the loss of a batch"));
}

TEST_CASE("run failures: a loss that is complex, or of other tensors, is refused") {
  const auto of_net = [](const LossFunction& loss) {
    return error_with(std::make_shared<ChangingNet>(), {.compute_loss = loss});
  };
  CHECK(contains(of_net([](ChangingNet& net, const Pair& batch) {
                   const at::Tensor mean = net.forward(batch.first).mean();
                   return at::complex(mean, mean);
                 }),
                 "trainer.loss-shape | the loss of a batch: got a number of type ComplexFloat"));
  CHECK(
      contains(of_net([](ChangingNet&, const Pair&) { return 2 * at::ones({}).requires_grad_(); }),
               "trainer.loss-without-gradient | step 1"));
}

TEST_CASE("run failures: data without rows are named") {
  const auto net = std::make_shared<ChangingNet>();
  CHECK(contains(error_with(net, {.train_dataset = TrainerDataset(Pairs{.count = 0})}),
                 "data.empty | train_dataset: got no rows"));
  CHECK(contains(error_with(net, {.eval_dataset = TrainerDataset(Pairs{.count = 0})}),
                 "data.empty | the data of an evaluation or a prediction: got no rows"));
  CHECK(net->calls == 0);  // the error comes before the first step
  CHECK(contains(error_with(net, {.train_dataset = TrainerDataset(EmptyStream())}), "data.empty"));
  CHECK(contains(error_with(net, {.eval_dataset = TrainerDataset(EmptyStream())}), "data.empty"));
}

TEST_CASE("run failures: a row that cannot be read is named, also by worker threads") {
  for (const int workers : {0, 2}) {
    const auto net = std::make_shared<ChangingNet>();
    const std::string error =
        error_with(net, {.train_dataset = TrainerDataset(Pairs{.failing = 7})}, workers);
    CHECK(contains(error, "data.batch | making batch "));
    CHECK(contains(error, "7"));
    CHECK(contains(error, "failed: got the file of this row is gone"));
    CHECK(contains(error_with(net, {.eval_dataset = TrainerDataset(Pairs{.failing = 7})}, workers),
                   "data.batch | making batch 0 of epoch 0 (rows 0, 1, 2, 3, 4, 5, 6, 7) failed"));
  }
}

TEST_CASE("run failures: processes with different models all say which parameter differs") {
  debug_launcher([] {
    const bool is_second = std::string(std::getenv("RANK")) == "1";
    const auto net = std::make_shared<ChangingNet>(nullptr, is_second ? 5 : 4);
    const std::string error = error_with(net, {});
    if (!contains(error,
                  "prepare.models-differ | the model passed to prepare() differs on rank 1: "
                  "got first.weight Float [5, 4], expected first.weight Float [4, 4]"))
      throw std::runtime_error(error);
  });
}

}  // namespace trainer_run_failures_test
