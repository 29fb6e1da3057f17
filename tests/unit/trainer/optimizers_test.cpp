// Runs with every optimizer and with the schedules that follow a metric: resuming, evaluating,
// saving, and what is refused before work starts.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/metrics/metric.h"
#include "hasten/optim/gradients.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_optimizers_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

TrainingArguments arguments(const Folder& folder) {
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 8;
  args.learning_rate = 1e-3;
  args.lr_scheduler_type = SchedulerType::constant;
  args.weight_decay = 0.1;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 4;
  return args;
}

TrainerParts parts() {
  return {.train_dataset = TrainerDataset(rows(22)),
          .eval_dataset = TrainerDataset(rows(10)),
          .log_sink = [](std::string_view) {}};
}

bool equal(const PreTrainedModel& model, const TensorDict& expected) {
  for (const auto& [name, tensor] : model.state_dict()) {
    if (!at::equal(tensor, expected.at(name))) return false;
  }
  return true;
}

TensorDict copy_of(const PreTrainedModel& model) {
  TensorDict out;
  for (const auto& [name, tensor] : model.state_dict()) out[name] = tensor.detach().clone();
  return out;
}

// Trains to the end, trains again from the checkpoint of step 4, and compares the bits.
void check_resumes(const TrainingArguments& given) {
  TrainingArguments args = given;
  const auto straight = new_model(), resumed = new_model();
  Trainer whole(straight, args, parts());
  whole.train();
  args.resume_from_checkpoint = (fs::path(args.output_dir) / "checkpoint-4").string();
  torch::manual_seed(99);  // using the generator in between must not matter
  Trainer rest(resumed, args, parts());
  CHECK(rest.train().steps == 4);
  CHECK(equal(*resumed, copy_of(*straight)));
  for (const char* key : {"loss", "learning_rate", "eval_loss"}) {
    CAPTURE(key);
    CHECK(logged(rest, key) == logged(whole, key));
  }
}

}  // namespace

TEST_CASE("optimizers: a resumed run gives the same bits as an uninterrupted one") {
  const std::map<OptimizerName, Kwargs> optim_args = {
      {OptimizerName::sgd, {{"momentum", 0.9}}},
      {OptimizerName::adafactor, {{"beta1", 0.9}}},
      {OptimizerName::adagrad, {{"initial_accumulator_value", 0.1}, {"lr_decay", 0.1}}},
      {OptimizerName::ademamix, {{"t_alpha", 6}, {"t_beta3", 6}}},
      {OptimizerName::rmsprop, {{"momentum", 0.5}, {"centered", true}}},
      {OptimizerName::schedule_free_sgd, {{"r", 0.5}}},
      {OptimizerName::adamw_8bit, {{"min_8bit_size", 64}}},
      {OptimizerName::lion_8bit, {{"min_8bit_size", 64}, {"embedding_bits", 8}}}};
  for (const std::string_view name : Names<OptimizerName>::text) {
    CAPTURE(name);
    const Folder folder;
    TrainingArguments args = arguments(folder);
    args.optim = *from_name<OptimizerName>(name);
    if (const auto found = optim_args.find(args.optim); found != optim_args.end())
      args.optim_args = found->second;
    if (args.optim == OptimizerName::lbfgs) args.weight_decay = 0;
    args.warmup_steps = 2;
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 2;
    check_resumes(args);
  }
}

namespace {

// Changes options of the first group, and records them at the begin of each step.
struct OptionChanger : TrainerCallback {
  torch::optim::AdamWOptions& options() const {
    return static_cast<torch::optim::AdamWOptions&>(optimizer->param_groups()[0].options());
  }
  void on_step_begin(const TrainerEvent&, TrainerControl&) override {
    rates.push_back(options().lr());
    decays.push_back(options().weight_decay());
    betas.push_back(std::get<0>(options().betas()));
  }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == 2) options().weight_decay(0.3).betas({0.8, 0.99});
    if (event.state.global_step == 4) options().lr(3e-3);  // for one step
  }
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<double> rates, decays, betas;
};

struct ChangedTrainer : Trainer {
  ChangedTrainer(const std::shared_ptr<PreTrainedModel>& model, const TrainingArguments& args,
                 TrainerParts parts, OptionChanger& to_change)
      : Trainer(model, args, std::move(parts)), changer(to_change) {}
  std::unique_ptr<torch::optim::Optimizer> create_optimizer() override {
    auto made = Trainer::create_optimizer();
    changer.optimizer = made.get();
    return made;
  }
  OptionChanger& changer;
};

}  // namespace

TEST_CASE("optimizers: a resumed run has the options that a callback has changed before") {
  using Numbers = std::vector<double>;
  const Folder folder;
  TrainingArguments args = arguments(folder);
  const auto train = [&](const std::shared_ptr<PreTrainedModel>& model) {
    const auto changer = std::make_shared<OptionChanger>();
    TrainerParts with_changer = parts();
    with_changer.callbacks = {changer};
    ChangedTrainer(model, args, with_changer, *changer).train();
    return changer;
  };
  const auto straight = new_model(), resumed = new_model();
  const auto whole = train(straight);
  CHECK(whole->decays == Numbers{0.1, 0.1, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3});
  CHECK(whole->rates == Numbers{1e-3, 1e-3, 1e-3, 1e-3, 3e-3, 1e-3, 1e-3, 1e-3});
  args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
  const auto rest = train(resumed);
  CHECK(rest->decays == Numbers{0.3, 0.3, 0.3, 0.3});
  CHECK(rest->betas == Numbers{0.8, 0.8, 0.8, 0.8});
  CHECK(rest->rates == Numbers{3e-3, 1e-3, 1e-3, 1e-3});
  CHECK(equal(*resumed, copy_of(*straight)));

  // An argument that has changed has precedence over the callback of the run before.
  args.weight_decay = 0.2;
  const auto decayed = train(new_model());
  CHECK(decayed->decays == Numbers{0.2, 0.2, 0.2, 0.2});
  CHECK(decayed->betas == Numbers{0.8, 0.8, 0.8, 0.8});
  args.weight_decay = 0.1;
  args.learning_rate = 2e-3;
  CHECK(train(new_model())->rates == Numbers{2e-3, 2e-3, 2e-3, 2e-3});
}

TEST_CASE("optimizers: the rounding of a resumed run does not depend on its seed") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.optim_args = {{"state_dtype", "bfloat16"}};
  const auto straight = new_model(), resumed = new_model();
  Trainer(straight, args, parts()).train();
  args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
  args.seed = 43;
  Trainer(resumed, args, parts()).train();
  CHECK(equal(*resumed, copy_of(*straight)));
}

TEST_CASE("optimizers: the case of letters of a type in optim_args does not count") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 4;
  args.optim_args = {{"state_dtype", "BFloat16"}};
  Trainer(new_model(), args, parts()).train();
  std::int64_t moments = 0;
  for (const auto& [name, tensor] :
       load_safetensors(folder.path / "checkpoint-4/optimizer.safetensors")) {
    CAPTURE(name);
    if (tensor.dim() == 0) continue;  // a number of steps
    CHECK((tensor.scalar_type() == at::kBFloat16));
    ++moments;
  }
  CHECK(moments > 0);
}

TEST_CASE("optimizers: steps in the backward pass and states in host memory change no bit") {
  const auto run = [](const Folder& folder, auto change) {
    TrainingArguments args = arguments(folder);
    args.max_grad_norm = 0;
    args.optim = OptimizerName::adamw_8bit;
    args.optim_args = {{"min_8bit_size", 64}};
    change(args);
    const auto model = new_model();
    Trainer trainer(model, args, parts());
    trainer.train();
    return std::pair(copy_of(*model), logged(trainer, "grad_norm"));
  };
  const Folder plain, inside, offloaded;
  const auto [weights, norms] = run(plain, [](TrainingArguments&) {});
  const auto [stepped, stepped_norms] =
      run(inside, [](TrainingArguments& args) { args.step_in_backward = true; });
  const auto [moved, moved_norms] =
      run(offloaded, [](TrainingArguments& args) { args.offload_optimizer_states = true; });
  for (const auto& [name, tensor] : weights) {
    CAPTURE(name);
    CHECK(stepped.at(name).equal(tensor));
    CHECK(moved.at(name).equal(tensor));
  }
  REQUIRE(stepped_norms.size() == norms.size());
  for (std::size_t i = 0; i < norms.size(); ++i)
    CHECK(stepped_norms[i] == doctest::Approx(norms[i]).epsilon(1e-6));

  TrainingArguments args = arguments(Folder());
  args.optim = OptimizerName::adamw_8bit;
  args.optim_args = {{"min_8bit_size", 64}};
  args.max_grad_norm = 0;
  args.step_in_backward = true;
  const Folder resumed;
  args.output_dir = resumed.path.string();
  check_resumes(args);
}

namespace {

struct Stepped {
  std::vector<double> norms;
  TensorDict weights;
};

std::vector<at::Tensor> classifier_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> found;
  for (const auto& item : model.named_parameters()) {
    if (starts_with(item.key(), "classifier")) found.push_back(item.value());
  }
  return found;
}

// Trains the classifier only, although all parameters get gradients.
struct ClassifierTrainer : Trainer {
  using Trainer::Trainer;
  std::unique_ptr<torch::optim::Optimizer> create_optimizer() override {
    return std::make_unique<torch::optim::SGD>(classifier_of(model()), 0.5);
  }
};

constexpr std::int64_t kClassifierSteps = 8, kClassifierRows = 16;

Stepped train_classifier(TrainingArguments args) {
  args.max_steps = kClassifierSteps;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  args.lr_scheduler_type = SchedulerType::constant;
  const auto model = new_model(0);
  ClassifierTrainer trainer(model, args,
                            {.train_dataset = TrainerDataset(rows(kClassifierRows)),
                             .log_sink = [](std::string_view) {}});
  trainer.train();
  for (const at::Tensor& each : model->parameters()) CHECK_FALSE(each.grad().defined());
  return {.norms = logged(trainer, "grad_norm"), .weights = copy_of(*model)};
}

// The same steps as a loop that clears all gradients, as the Hugging Face Trainer does.
Stepped train_classifier_by_hand() {
  Stepped done;
  const auto model = new_model(0);
  model->train();
  torch::optim::SGD sgd(classifier_of(*model), 0.5);
  auto loader = make_loader(rows(kClassifierRows), {.batch_size = 4});
  while (std::ssize(done.norms) < kClassifierSteps) {
    for (const TensorDict& batch : loader) {
      model->zero_grad();
      model->forward(batch).loss.backward();
      done.norms.push_back(clip_grad_norm_(model->parameters(), 1.0));
      sgd.step();
    }
  }
  done.weights = copy_of(*model);
  return done;
}

}  // namespace

TEST_CASE("optimizers: one that leaves out parameters gets the gradients of its own step only") {
  const Stepped expected = train_classifier_by_hand();
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  const Stepped in_float = train_classifier(args);
  args.fp16 = true;
  const Stepped in_half = train_classifier(args);
  REQUIRE(in_float.norms.size() == expected.norms.size());
  REQUIRE(in_half.norms.size() == expected.norms.size());
  for (std::size_t i = 0; i < expected.norms.size(); ++i) {
    CAPTURE(i);
    CHECK(in_float.norms[i] == doctest::Approx(expected.norms[i]).epsilon(1e-4));
    CHECK(in_half.norms[i] == doctest::Approx(expected.norms[i]).epsilon(0.05));
  }
  for (const auto& [name, tensor] : expected.weights) {
    CAPTURE(name);
    CHECK(at::allclose(in_float.weights.at(name), tensor, 1e-4, 1e-5));
    CHECK(at::allclose(in_half.weights.at(name), tensor, 0.05, 0.01));
  }
}

TEST_CASE("optimizers: a checkpoint does not resume with another optimizer") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.optim = OptimizerName::lion_32bit;
  Trainer(new_model(), args, parts()).train();
  args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
  args.optim = OptimizerName::adafactor;
  CHECK(code_of([&] { Trainer(new_model(), args, parts()).train(); }) ==
        "checkpoint.optimizer-kind");
}

TEST_CASE("optimizers: schedule-free runs evaluate and save the mean, and train other weights") {
  struct WeightRecorder : TrainerCallback {
    explicit WeightRecorder(PreTrainedModel& watched) : model(watched) {}
    void on_pre_optimizer_step(const TrainerEvent&, TrainerControl&) override {
      trained = copy_of(model);
    }
    void on_prediction_step(const TrainerEvent& event, TrainerControl&) override {
      if (event.state.global_step == 4) evaluated = copy_of(model);
    }
    PreTrainedModel& model;
    TensorDict trained, evaluated;
  };
  for (const OptimizerName optim :
       {OptimizerName::schedule_free_adamw, OptimizerName::schedule_free_sgd}) {
    CAPTURE(name_of(optim));
    const Folder folder;
    TrainingArguments args = arguments(folder);
    args.optim = optim;
    args.learning_rate = 0.01;
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 4;
    const auto model = new_model();
    const auto recorder = std::make_shared<WeightRecorder>(*model);
    TrainerParts given = parts();
    given.callbacks = {recorder};
    Trainer trainer(model, args, std::move(given));
    trainer.train();
    // An evaluation uses the weights in the checkpoint of its step, and the run ends with the
    // weights in the last checkpoint.
    CHECK(equal(*model, load_safetensors(folder.path / "checkpoint-8/model.safetensors")));
    const TensorDict saved = load_safetensors(folder.path / "checkpoint-4/model.safetensors");
    for (const auto& [name, tensor] : recorder->evaluated) {
      CAPTURE(name);
      CHECK(at::equal(tensor, saved.at(name)));
    }
    CHECK_FALSE(at::allclose(recorder->trained.at("classifier.weight"),
                             model->state_dict().at("classifier.weight"), 1e-5, 1e-6));
  }
}

TEST_CASE("optimizers: a schedule-free run with a falling rate is reported") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.optim = OptimizerName::schedule_free_adamw;
  args.lr_scheduler_type = SchedulerType::linear;
  std::string log;
  TrainerParts given = parts();
  given.log_sink = [&](std::string_view line) { log += line; };
  Trainer(new_model(), args, std::move(given)).train();
  CHECK_MESSAGE(log.find("Use --lr_scheduler_type constant") != std::string::npos, log);
}

TEST_CASE("metric schedules: the rate follows evaluations, and a resumed run continues") {
  for (const SchedulerType type : {SchedulerType::reduce_lr_on_plateau, SchedulerType::greedy}) {
    CAPTURE(name_of(type));
    const Folder folder;
    TrainingArguments args = arguments(folder);
    args.lr_scheduler_type = type;
    // No change counts as an improvement, so two evaluations in a row reduce the rate.
    args.lr_scheduler_kwargs = {{"factor", 0.5},
                                {"patience", 1},
                                {"threshold", 10},
                                {"threshold_mode", "abs"},
                                {"min_lr", 1e-6}};
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 1;
    check_resumes(args);
    const Folder again;
    args.output_dir = again.path.string();
    Trainer trainer(new_model(), args, parts());
    trainer.train();
    const std::vector<double> rates = logged(trainer, "learning_rate");
    REQUIRE(rates.size() == 8);
    // The first evaluation sets the best metric; the third reduces the rate of step 4.
    CHECK(rates[0] == 1e-3);
    CHECK(rates[2] == 1e-3);
    CHECK(rates[3] == doctest::Approx(5e-4));
    CHECK(rates[5] == doctest::Approx(2.5e-4));
    CHECK(rates[7] == doctest::Approx(1.25e-4));
  }
}

TEST_CASE("metric schedules: a metric that should rise lowers the rate when it does not") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau;
  args.lr_scheduler_kwargs = {{"patience", 0}};
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 1;
  args.metric_for_best_model = "rising";
  double value = 0;
  TrainerParts given = parts();
  given.compute_metrics = metric_from_function([&](const EvalPrediction&) -> Metrics {
    return {{"rising", value += 1}};
  });
  Trainer trainer(new_model(), args, std::move(given));
  trainer.train();
  for (const double rate : logged(trainer, "learning_rate")) CHECK(rate == 1e-3);
}

TEST_CASE("metric schedules: without evaluation data or the metric they are refused") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau;
  CHECK(code_of([&] { Trainer(new_model(), args, parts()); }) == "config.contradiction");
  args.eval_strategy = IntervalStrategy::epoch;
  TrainerParts without = parts();
  without.eval_dataset = {};
  CHECK(code_of([&] { Trainer(new_model(), args, std::move(without)).train(); }) ==
        "trainer.no-eval-data");
  CHECK_FALSE(fs::exists(folder.path));
  args.metric_for_best_model = "f1";
  CHECK(code_of([&] { Trainer(new_model(), args, parts()).train(); }) == "trainer.unknown-metric");
}

}  // namespace trainer_optimizers_test
