// The Trainer with modules that do not depend on hasten, batches of any type, and replaced steps.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/formats/weights.h"
#include "hasten/metrics/classification.h"
#include "hasten/optim/adamw.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_any_module_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using hasten::tiny_runs::Folder;
using hasten::tiny_runs::logged;
using hasten::tiny_runs::short_run;
namespace fs = std::filesystem;

namespace {

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(5);
    register_module("layer", layer = torch::nn::Linear(4, 3));
    register_buffer("calls", calls = at::zeros({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    calls += 1;
    return layer->forward(x);
  }
  torch::nn::Linear layer = nullptr;
  at::Tensor calls;
};

using Pair = std::pair<at::Tensor, at::Tensor>;
struct Row {
  at::Tensor x;
  std::vector<at::Tensor> extra;
  at::Tensor y;
};

Pair pair_of(std::int64_t index) {
  const at::Tensor x = at::sin(at::arange(4) + 3 * index);
  return {x, x.slice(0, 0, 3).argmax()};
}

struct Pairs {
  std::int64_t size() const { return rows; }
  Pair get(std::int64_t index) const { return pair_of(index); }
  std::int64_t rows = 22;
};
struct Structs {
  std::int64_t size() const { return 22; }
  Row get(std::int64_t index) const {
    const auto [x, y] = pair_of(index);
    return {.x = x, .extra = {at::zeros({1}), at::ones({2})}, .y = y};
  }
};
struct Maps {
  std::int64_t size() const { return 22; }
  TensorDict get(std::int64_t index) const {
    const auto [x, y] = pair_of(index);
    return {{"x", x}, {"labels", y}};
  }
};
struct Examples : torch::data::datasets::Dataset<Examples> {
  torch::data::Example<> get(std::size_t index) override {
    const auto [x, y] = pair_of(static_cast<std::int64_t>(index));
    return {x, y};
  }
  torch::optional<std::size_t> size() const override { return 22; }
};
struct Plain {
  std::int64_t size() const { return 22; }
  at::Tensor get(std::int64_t index) const { return pair_of(index).first; }
};

ModelOutput scored(Net& net, const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor logits = net.forward(x);
  return {.loss = torch::nn::functional::cross_entropy(logits, y), .logits = logits};
}
ModelOutput loss_of_pair(Net& net, const Pair& batch) {
  return scored(net, batch.first, batch.second);
}

TrainingArguments two_epochs(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.per_device_eval_batch_size = 4;
  args.num_train_epochs = 2;
  args.learning_rate = 0.05;
  return args;
}

// Trains and evaluates, and returns the losses and the accuracy.
std::vector<double> run(TrainerParts parts) {
  const Folder folder;
  parts.compute_metrics = std::make_shared<Accuracy>();
  parts.log_sink = [](std::string_view) {};
  Trainer trainer(std::make_shared<Net>(), two_epochs(folder.path), std::move(parts));
  trainer.train();
  std::vector<double> out = logged(trainer);
  out.push_back(trainer.evaluate().at("eval_accuracy"));
  return out;
}

// The same run as a loop of plain LibTorch.
std::vector<double> run_plain() {
  Net net;
  torch::manual_seed(42);
  std::vector<double> losses;
  AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0));
  auto schedule = get_scheduler(SchedulerType::linear, optimizer, {.num_training_steps = 12});
  auto loader = make_loader(Pairs(), {.batch_size = 4, .shuffle = true, .seed = 42});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Pair& batch : loader) {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of_pair(net, batch).loss;
      loss.backward();
      clip_grad_norm_(net.parameters(), 1.0);
      optimizer.step();
      schedule->step();
      losses.push_back(loss.item<double>());
    }
  }
  return losses;
}

}  // namespace

TEST_CASE("any module: batches of every type give the losses of a plain loop") {
  std::vector<double> plain = run_plain();
  const std::vector<double> pairs = run({.train_dataset = TrainerDataset(Pairs()),
                                         .eval_dataset = TrainerDataset(Pairs()),
                                         .compute_loss = loss_of_pair});
  REQUIRE(pairs.size() == 13);
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(pairs[i] == doctest::Approx(plain[i]).epsilon(1e-5));
  CHECK(pairs.back() > 0.5);
  CHECK(run({.train_dataset = TrainerDataset(Structs()),
             .eval_dataset = TrainerDataset(Structs()),
             .compute_loss =
                 [](Net& net, const Row& batch) {
                   CHECK(batch.extra[1].dim() == 2);
                   return scored(net, batch.x, batch.y);
                 },
             .labels = [](const Row& batch) { return batch.y; }}) == pairs);
  CHECK(run({.train_dataset = TrainerDataset(Maps()),
             .eval_dataset = TrainerDataset(Maps()),
             .compute_loss = [](Net& net, const TensorDict& batch) {
               return scored(net, batch.at("x"), batch.at("labels"));
             }}) == pairs);
  const auto of_example = [](torch::nn::Module& net, const torch::data::Example<>& batch) {
    return scored(*net.as<Net>(), batch.data, batch.target);
  };
  const auto stacked = [] { return Examples().map(torch::data::transforms::Stack<>()); };
  CHECK(run({.train_dataset = TrainerDataset(stacked()),
             .eval_dataset = TrainerDataset(stacked()),
             .compute_loss = of_example}) == pairs);
}

TEST_CASE("any module: a loss alone is trained on, evaluated and predicted without logits") {
  const Folder folder;
  Net net;  // on the stack
  const auto loss = [](Net& net, const at::Tensor& x) { return net.forward(x).square().mean(); };
  Trainer trainer(net, two_epochs(folder.path),
                  {.train_dataset = TrainerDataset(Plain()),
                   .eval_dataset = TrainerDataset(Plain()),
                   .compute_loss = loss});
  const TrainOutput out = trainer.train();
  CHECK(out.global_step == 12);
  CHECK(out.metrics.count("total_flos") == 0);
  CHECK(trainer.evaluate().at("eval_loss") < logged(trainer).front());
  CHECK_FALSE(trainer.predict(TrainerDataset(Plain())).predictions.defined());
  CHECK(&trainer.model() == &net);
  trainer.save_model();
  const TensorDict saved = load_weights(folder.path);
  CHECK(saved.size() == 3);
  CHECK(at::equal(saved.at("layer.weight"), net.layer->weight));
  CHECK(at::equal(saved.at("calls"), net.calls));
}

namespace {

// Computes its loss itself, from a batch of its own type.
struct LossComputingNet : torch::nn::Module {
  LossComputingNet() : net(register_module("net", std::make_shared<Net>())) {}
  ModelOutput forward(const Row& batch) { return scored(*net, batch.x, batch.y); }
  std::shared_ptr<Net> net;
};

struct NetHolderImpl : Net {};
TORCH_MODULE(NetHolder);

}  // namespace

TEST_CASE("any module: forward may take the batch, and holders and exact types are accepted") {
  static_assert(ComputesLoss<LossComputingNet, Row>);
  static_assert(ComputesLoss<PreTrainedModel, TensorDict>);
  static_assert(!ComputesLoss<Net, at::Tensor>);
  const Folder folder;
  Trainer own(std::make_shared<LossComputingNet>(), two_epochs(folder.path),
              {.train_dataset = TrainerDataset(Structs()),
               .labels = [](const Row& batch) { return batch.y; }});
  own.train();
  NetHolder holder;
  Trainer of_holder(holder, two_epochs(folder.path),
                    {.train_dataset = TrainerDataset(Pairs()),
                     .compute_loss = [](NetHolder& net, const Pair& batch) {
                       return loss_of_pair(*net, batch);
                     }});
  of_holder.train();
  CHECK(logged(own) == logged(of_holder));
}

TEST_CASE("any module: a resumed run gives the same bits as an uninterrupted run") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    CAPTURE(c10::toString(type));
    const Folder whole, parts;
    const auto trained = [type](TrainingArguments args) {
      const auto net = std::make_shared<Net>();
      net->to(type);
      Trainer trainer(net, args,
                      {.train_dataset = TrainerDataset(Pairs()),
                       .compute_loss =
                           [type](Net& module, const Pair& batch) {
                             return scored(module, batch.first.to(type), batch.second);
                           },
                       .log_sink = [](std::string_view) {}});
      trainer.train();
      return net->layer->weight.clone();
    };
    TrainingArguments args = two_epochs(whole.path);
    const at::Tensor expected = trained(args);
    CHECK((expected.scalar_type() == type));
    args.output_dir = parts.path.string();
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 5;
    trained(args);
    args.resume_from_checkpoint = (parts.path / "checkpoint-5").string();
    CHECK(at::equal(trained(args), expected));
  }
}

TEST_CASE("any module: several processes log the losses of a single process") {
  const Folder folder;
  const auto trained = [&](std::int64_t batch) {
    TrainingArguments args = two_epochs(folder.path);
    args.per_device_train_batch_size = args.per_device_eval_batch_size = batch;
    Trainer trainer(std::make_shared<Net>(), args,
                    {.train_dataset = TrainerDataset(Pairs{.rows = 25}),
                     .eval_dataset = TrainerDataset(Pairs{.rows = 7}),
                     .compute_loss = loss_of_pair,
                     .compute_metrics = std::make_shared<Accuracy>()});
    trainer.train();
    std::vector<double> out = logged(trainer);
    const Metrics metrics = trainer.evaluate();
    out.push_back(metrics.at("eval_loss"));
    out.push_back(metrics.at("eval_accuracy"));
    const PredictionOutput predicted = trainer.predict(TrainerDataset(Pairs{.rows = 7}));
    out.push_back(static_cast<double>(predicted.predictions.size(0)));
    for (std::int64_t row = 0; row < 7; ++row)
      out.push_back(predicted.predictions[row][0].item<double>());
    return out;
  };
  const std::vector<double> alone = trained(6);
  for (const int processes : {2, 3}) {
    notebook_launcher(
        [&] {
          const std::vector<double> shared = trained(6 / processes);
          require(shared.size() == alone.size(), "another number of logs");
          for (std::size_t i = 0; i < alone.size(); ++i)
            require(std::abs(shared[i] - alone[i]) < 1e-4,
                    str("number ", i, ": ", shared[i], " and ", alone[i]));
        },
        {.num_processes = processes});
  }
}

namespace {

// Replaces every step.
struct Recorder : Trainer {
  using Trainer::Trainer;

  ModelOutput compute_loss(AnyBatch& batch) override {
    ModelOutput out = Trainer::compute_loss(batch);
    out.loss = 2 * out.loss;
    return out;
  }
  at::Tensor training_step(AnyBatch& batch, double items) override {
    rows += batch.as<Pair>().first.size(0);
    labels += items;
    return Trainer::training_step(batch, items);
  }
  ModelOutput prediction_step(AnyBatch& batch) override {
    ModelOutput out = Trainer::prediction_step(batch);
    out.logits = -out.logits;
    return out;
  }
  std::unique_ptr<torch::optim::Optimizer> create_optimizer() override {
    return std::make_unique<torch::optim::SGD>(model().parameters(), 0.5);
  }
  std::unique_ptr<LambdaLR> create_scheduler(torch::optim::Optimizer& optimizer,
                                             std::int64_t num_training_steps) override {
    steps = num_training_steps;
    return std::make_unique<LambdaLR>(optimizer,
                                      std::vector<std::function<double(std::int64_t)>>{
                                          [](std::int64_t step) { return std::pow(0.5, step); }});
  }
  void log(Metrics logs) override {
    logs["rows"] = static_cast<double>(rows);
    Trainer::log(std::move(logs));
  }
  Loader<AnyBatch> get_train_dataloader() override {
    return TrainerDataset(Pairs{.rows = 8}).loader({.batch_size = 4});
  }
  Loader<AnyBatch> get_eval_dataloader(const TrainerDataset& dataset) override {
    return dataset.loader({.batch_size = 1});
  }

  std::int64_t rows = 0, steps = 0;
  double labels = 0;
};

// Returns the losses without their graphs, as Hugging Face's training_step does.
struct DetachingTrainer : Trainer {
  using Trainer::Trainer;
  at::Tensor training_step(AnyBatch& batch, double items) override {
    return Trainer::training_step(batch, items).detach();
  }
};

// Counts the batches of evaluations.
struct BatchCounter : TrainerCallback {
  void on_prediction_step(const TrainerEvent&, TrainerControl&) override { ++batches; }
  int batches = 0;
};

}  // namespace

TEST_CASE("steps: a class that derives from Trainer replaces them") {
  const Folder folder;
  const auto counter = std::make_shared<BatchCounter>();
  const TrainerParts parts{.train_dataset = TrainerDataset(Pairs()),
                           .eval_dataset = TrainerDataset(Pairs{.rows = 5}),
                           .compute_loss = loss_of_pair,
                           .callbacks = {counter}};
  Recorder trainer(std::make_shared<Net>(), two_epochs(folder.path), parts);
  CHECK(trainer.train().global_step == 4);
  CHECK(trainer.rows == 16);
  CHECK(trainer.labels == 16);
  CHECK(trainer.steps == 4);
  CHECK(trainer.state().log_history.front().at("rows") == 4);
  CHECK(trainer.state().log_history[1].at("learning_rate") == doctest::Approx(0.25));
  const PredictionOutput out = trainer.predict(TrainerDataset(Pairs{.rows = 5}));
  CHECK(counter->batches == 5);
  CHECK(trainer.accelerator().group().size() == 1);
  Trainer plain(std::make_shared<Net>(), two_epochs(folder.path), parts);
  const double doubled =
      Recorder(std::make_shared<Net>(), two_epochs(folder.path), parts).evaluate().at("eval_loss");
  CHECK(doubled == doctest::Approx(2 * plain.evaluate().at("eval_loss")).epsilon(1e-5));
  trainer.model().eval();
  const at::Tensor logits = trainer.model().as<Net>()->forward(pair_of(0).first);
  CHECK(at::allclose(out.predictions[0], -logits, 1e-5, 1e-6));
}

TEST_CASE("steps: the loss that a step returns may be detached") {
  const Folder folder;
  const TrainerParts parts{.train_dataset = TrainerDataset(Pairs()), .compute_loss = loss_of_pair};
  Trainer plain(std::make_shared<Net>(), two_epochs(folder.path), parts);
  plain.train();
  DetachingTrainer detaching(std::make_shared<Net>(), two_epochs(folder.path), parts);
  detaching.train();
  CHECK(logged(detaching) == logged(plain));
}

namespace {

struct GrowingNet : Net {
  at::Tensor forward(const at::Tensor& x) {
    if (!scale.defined()) scale = register_parameter("scale", at::ones({}));
    return scale * Net::forward(x);
  }
  at::Tensor scale;
};

struct Empty : torch::nn::Module {};

template <class Model, class Loss>
std::string code_of_run(const std::shared_ptr<Model>& model, Loss loss,
                        double label_smoothing_factor = 0) {
  return code_of([&] {
    const Folder folder;
    TrainingArguments args = two_epochs(folder.path);
    args.label_smoothing_factor = label_smoothing_factor;
    Trainer trainer(model, args,
                    {.train_dataset = TrainerDataset(Pairs()),
                     .eval_dataset = TrainerDataset(Pairs()),
                     .compute_loss = loss,
                     .compute_metrics = std::make_shared<Accuracy>(),
                     .log_sink = [](std::string_view) {}});
    trainer.train();
    trainer.evaluate();
  });
}

}  // namespace

TEST_CASE("any module: bad input is an error that names it") {
  const auto net = std::make_shared<Net>();
  CHECK(code_of_run(net, loss_of_pair) == "none");
  CHECK(code_of_run(std::make_shared<Empty>(), [](Empty&, const Pair& batch) {
          return batch.first.sum();
        }) == "trainer.no-parameters");
  const auto frozen = std::make_shared<Net>();
  for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  CHECK(code_of_run(frozen, loss_of_pair) == "trainer.no-parameters");
  CHECK(code_of_run(net, [](Net& net, const Pair& batch) { return net.forward(batch.first); }) ==
        "trainer.loss-shape");
  CHECK(code_of_run(net, [](Net& net, const Pair& batch) {
          return net.forward(batch.first).sum().detach();
        }) == "trainer.loss-without-gradient");
  CHECK(code_of_run(net, [](Net&, const Pair&) { return at::Tensor(); }) == "trainer.no-loss");
  CHECK(code_of_run(net, [](Net& net, const Pair& batch) {
          return net.forward(batch.first).sum();
        }) == "trainer.no-logits");
  CHECK(code_of_run(net, LossFunction()) == "trainer.no-compute-loss");
  CHECK(code_of_run(net, [](Net& net, const Row& batch) { return net.forward(batch.x).sum(); }) ==
        "data.batch-type");
  CHECK(code_of_run(net, [](GrowingNet& net, const Pair& batch) {
          return net.forward(batch.first).sum();
        }) == "prepare.model-type");
  CHECK(code_of_run(std::make_shared<GrowingNet>(), [](GrowingNet& net, const Pair& batch) {
          return net.forward(batch.first).sum();
        }) == "trainer.parameters-changed");
  CHECK(code_of_run(net, loss_of_pair, 0.1) == "trainer.label-smoothing");
  CHECK(code_of([&] { Trainer(std::shared_ptr<Net>(), TrainingArguments(), {}); }) ==
        "trainer.no-model");
}

namespace {

struct NormNet : torch::nn::Module {
  NormNet() {
    torch::manual_seed(5);
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                                        torch::nn::Linear(8, 3)));
  }
  torch::nn::Sequential layers = nullptr;
};

// Records the rows of each batch without rows of its own, and makes its inputs NaN, which may not
// reach the weights.
struct FillerRecorder : Trainer {
  using Trainer::Trainer;
  at::Tensor training_step(AnyBatch& batch, double items) override {
    if (items == 0) {
      rows.push_back(batch.as<Pair>().first.size(0));
      batch.as<Pair>().first.fill_(std::nan(""));
    }
    return Trainer::training_step(batch, items);
  }
  std::vector<std::int64_t> rows;
};

}  // namespace

TEST_CASE("any module: a module with BatchNorm trains on if a process has no rows in a step") {
  const Folder folder;
  notebook_launcher(
      [&] {
        const auto net = std::make_shared<NormNet>();
        FillerRecorder trainer(
            net, two_epochs(folder.path),
            {.train_dataset = TrainerDataset(Pairs{.rows = 12}),  // a step of 8 rows, and one of 4
             .compute_loss = [](NormNet& module, const Pair& batch) -> at::Tensor {
               return torch::nn::functional::cross_entropy(module.layers->forward(batch.first),
                                                           batch.second);
             }});
        require(trainer.train().global_step == 4, "another number of steps");
        const std::vector<std::int64_t> expected = trainer.is_world_process_zero()
                                                       ? std::vector<std::int64_t>{}
                                                       : std::vector<std::int64_t>{4, 4};
        require(trainer.rows == expected, "other batches without items");
        for (const double loss : logged(trainer)) require(std::isfinite(loss), "a loss is NaN");
        require_same_on_all_ranks(trainer.accelerator().group(), net->parameters(), "a weight");
      },
      {.num_processes = 2});
}

TEST_CASE("any module: a failure in a process without rows of its own names no rows") {
  const Folder folder;
  notebook_launcher(
      [&] {
        std::string log;
        bool fails = false;
        Trainer trainer(std::make_shared<Net>(), two_epochs(folder.path),
                        {.compute_loss =
                             [&](Net& net, const Pair& batch) {
                               if (fails) (void)at::ones({2, 3}).mm(at::ones({2, 3}));
                               return loss_of_pair(net, batch);
                             },
                         .log_sink = [&](std::string_view line) { log += line; }});
        fails = !trainer.is_world_process_zero();
        bool has_thrown = false;
        try {
          trainer.evaluate(TrainerDataset(Pairs{.rows = 4}));
        } catch (const std::exception&) {
          has_thrown = true;
        }
        require(has_thrown, "no error");
        require(!fails || log.find("failed in a process that has no rows of its own in this "
                                   "step: mat1 and mat2") != std::string::npos,
                log);
      },
      {.num_processes = 2});
}

namespace {

// Keeps the type of the logits of the latest batch.
struct TypeRecorder : EvalMetric {
  void reset() override {}
  void add(const at::Tensor& logits, const at::Tensor&) override { type = logits.scalar_type(); }
  Metrics compute() const override { return {{"calls", 1}}; }
  at::ScalarType type = at::ScalarType::Undefined;
};

// Returns the type of the logits that a metric and a prediction get.
at::ScalarType logits_type(const TrainingArguments& args, at::ScalarType of_weights = at::kFloat) {
  const auto metric = std::make_shared<TypeRecorder>();
  const auto net = std::make_shared<Net>();
  net->to(of_weights);
  Trainer trainer(net, args,
                  {.eval_dataset = TrainerDataset(Pairs()),
                   .compute_loss =
                       [of_weights](Net& module, const Pair& batch) {
                         return scored(module, batch.first.to(of_weights), batch.second);
                       },
                   .compute_metrics = metric,
                   .log_sink = [](std::string_view) {}});
  trainer.evaluate();
  const at::ScalarType evaluated = metric->type;
  CHECK((trainer.predict(TrainerDataset(Pairs())).predictions.scalar_type() == evaluated));
  return evaluated;
}

}  // namespace

TEST_CASE("any module: with mixed precision, metrics and predictions get logits in float") {
  const Folder folder;
  TrainingArguments args = two_epochs(folder.path);
  CHECK((logits_type(args) == at::kFloat));
  CHECK((logits_type(args, at::kBFloat16) == at::kBFloat16));
  args.bf16_full_eval = true;
  CHECK((logits_type(args) == at::kBFloat16));
  args.bf16_full_eval = false;
  args.bf16 = true;
  CHECK((logits_type(args) == at::kFloat));
  args.bf16 = false;
  args.fp16 = true;
  CHECK((logits_type(args) == at::kFloat));
}

TEST_CASE("trainer batch: it is read as its own type only, and a copy has its own tensors") {
  AnyBatch batch(Pair(at::zeros({2}), at::ones({2})));
  CHECK(batch.as<Pair>().second.sum().item<float>() == 2);
  CHECK(batch.get_if<TensorDict>() == nullptr);
  CHECK(code_of([&] { batch.as<Row>(); }) == "data.batch-type");
  AnyBatch copy = batch.copy();
  for_each_tensor(copy, [](at::Tensor& tensor) { tensor = tensor + 1; });
  CHECK(batch.as<Pair>().first.sum().item<float>() == 0);
  CHECK(copy.as<Pair>().first.sum().item<float>() == 2);
  CHECK(copy.labels("labels").sum().item<float>() == 4);
  CHECK_FALSE(AnyBatch(at::ones({1})).labels("labels").defined());
}

}  // namespace trainer_any_module_test
