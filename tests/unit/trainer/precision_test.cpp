// The Trainer in float16 and with weights in bfloat16: what it trains, keeps, skips and refuses.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_precision_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

using Change = void (*)(TrainingArguments&);

void use_fp16(TrainingArguments& args) { args.fp16 = true; }
void use_bfloat16_weights(TrainingArguments& args) {
  args.weights_dtype = WeightsType::bfloat16;
  args.optim_args.set("state_dtype", "bfloat16");
}

struct Trained {
  std::vector<double> losses, skipped;
  TensorDict weights;
  TrainOutput out;
  std::string log;
};

// Multiplies the loss by `factor`, so that its gradients overflow float16 at first.
template <int factor>
ModelOutput large_loss(PreTrainedModel& model, TensorDict& batch) {
  ModelOutput out = model.forward(batch);
  out.loss = out.loss * static_cast<double>(factor);
  return out;
}

Trained train(const TrainingArguments& args, const ColumnDataset& data = rows(20),
              LossFunction loss = {}) {
  Trained run;
  const auto model = new_model();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(data),
                   .eval_dataset = TrainerDataset(rows(8)),
                   .compute_loss = std::move(loss),
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  run.out = trainer.train();
  run.losses = logged(trainer);
  run.skipped = logged(trainer, "skipped_steps");
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  return run;
}

TrainingArguments ten_steps(const fs::path& folder, Change change) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 10;
  args.learning_rate = 1e-3;
  change(args);
  return args;
}

bool same_weights(const Trained& a, const Trained& b) {
  bool same = a.weights.size() == b.weights.size();
  for (const auto& [name, tensor] : a.weights) same = same && at::equal(tensor, b.weights.at(name));
  return same;
}

}  // namespace

TEST_CASE("precision: losses in float16 and with bfloat16 weights follow those in float") {
  const Folder folder;
  const Trained plain = train(ten_steps(folder.path, [](TrainingArguments&) {}));
  for (const Change change : {&use_fp16, &use_bfloat16_weights}) {
    const Trained run = train(ten_steps(folder.path, change));
    REQUIRE(run.losses.size() == plain.losses.size());
    for (std::size_t i = 0; i < run.losses.size(); ++i)
      CHECK(run.losses[i] == doctest::Approx(plain.losses[i]).epsilon(0.05));
  }
}

TEST_CASE("precision: steps that overflow are counted, and the schedule waits for them") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path, &use_fp16);
  args.lr_scheduler_type = SchedulerType::linear;
  const Trained run = train(args, rows(20), LossFunction(&large_loss<64>));
  REQUIRE(run.out.metrics.contains("skipped_steps"));
  const double skipped = run.out.metrics.at("skipped_steps");
  CHECK(skipped > 0);
  CHECK(skipped < 10);
  // Each skipped step is logged, and the end of the run logs their number.
  CHECK(run.skipped.size() == static_cast<std::size_t>(skipped) + 1);
  CHECK(run.skipped.back() == skipped);
  CHECK(run.out.global_step == 10);
}

TEST_CASE("precision: a run that stops and continues gives the same bits") {
  struct Case {
    Change change;
    std::int64_t accumulation;
    int factor;
  };
  for (const Case& each :
       {Case{&use_fp16, 1, 64}, Case{&use_fp16, 2, 64}, Case{&use_bfloat16_weights, 1, 1}}) {
    const Folder folder;
    TrainingArguments args = ten_steps(folder.path, each.change);
    args.gradient_accumulation_steps = each.accumulation;
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 3;
    const LossFunction loss = each.factor == 1 ? LossFunction() : LossFunction(&large_loss<64>);
    const Trained straight = train(args, rows(20), loss);
    for (const char* const checkpoint : {"checkpoint-3", "checkpoint-6"}) {
      args.resume_from_checkpoint = (folder.path / checkpoint).string();
      const Trained resumed = train(args, rows(20), loss);
      CHECK(same_weights(straight, resumed));
      CHECK(resumed.log.find("when the checkpoint was made") == std::string::npos);
    }
  }
}

TEST_CASE("precision: a loss that overflows at every scale ends the run with the reason") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path, &use_fp16);
  args.max_steps = 100;
  const LossFunction endless([](PreTrainedModel& model, TensorDict& batch) {
    ModelOutput out = model.forward(batch);
    // The loss is finite, but its gradient is not.
    out.loss = out.loss + (out.loss - out.loss.detach()).sqrt();
    return out;
  });
  CHECK(code_of([&] { train(args, rows(20), endless); }) == "optim.loss-scale");
}

TEST_CASE("precision: stop_on_nonfinite_loss concerns losses, not gradients that are skipped") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path, &use_fp16);
  args.stop_on_nonfinite_loss = true;
  CHECK(train(args, rows(20), LossFunction(&large_loss<64>)).out.global_step == 10);
  const LossFunction infinite([](PreTrainedModel& model, TensorDict& batch) {
    ModelOutput out = model.forward(batch);
    out.loss = out.loss * std::numeric_limits<double>::infinity();
    return out;
  });
  CHECK(code_of([&] { train(args, rows(20), infinite); }) == "trainer.nonfinite-loss");
}

TEST_CASE("precision: fp16_full_eval evaluates in 16 bits") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  const auto loss = [&](bool half) {
    args.fp16_full_eval = half;
    const auto model = new_model(0);
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& weight : model->parameters()) weight.mul_(5);  // makes the logits larger
    Trainer trainer(model, args, {.eval_dataset = TrainerDataset(rows(8))});
    return trainer.evaluate().at("eval_loss");
  };
  const double rounded = loss(true), exact = loss(false);
  CHECK(rounded != exact);
  CHECK(rounded == doctest::Approx(exact).epsilon(0.01));
}

TEST_CASE("precision: tf32 is refused where there is none, unless it is turned off") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.tf32 = true;
  CHECK(code_of([&] { Trainer trainer(new_model(), args, {}); }) == "trainer.tf32");
  args.tf32 = false;
  CHECK(code_of([&] { Trainer trainer(new_model(), args, {}); }) == "none");
}

TEST_CASE("precision: bfloat16 weights are saved as such, with their type in config.json") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path, &use_bfloat16_weights);
  const auto model = new_model();
  model->save_pretrained(folder.directory.path() / "float");
  Trainer trainer(model, args, {.train_dataset = TrainerDataset(rows(20))});
  trainer.train();
  trainer.save_model(folder.path);
  const auto dtype_in = [](const fs::path& where) {
    return nlohmann::json::parse(read_file(where / "config.json")).at("dtype").get<std::string>();
  };
  CHECK(dtype_in(folder.directory.path() / "float") == "float32");
  CHECK(dtype_in(folder.path) == "bfloat16");
  for (const auto& [name, tensor] : load_safetensors(folder.path / "model.safetensors"))
    CHECK((tensor.scalar_type() == at::kBFloat16));
  for (const at::Tensor& each : model->parameters()) CHECK((each.scalar_type() == at::kBFloat16));
}

TEST_CASE("precision: three seeds reach the loss of float in each precision") {
  const Folder folder;
  const auto losses = [&](Change change) {
    std::vector<double> all;
    for (const std::int64_t seed : {1, 2, 3}) {
      TrainingArguments args = ten_steps(folder.path, change);
      args.per_device_train_batch_size = 8;
      args.max_steps = 60;
      args.learning_rate = 3e-3;
      args.logging_steps = 20;
      args.seed = seed;
      all.push_back(train(args, rows(64)).losses.back());
    }
    return at::mean(torch::tensor(all, at::kDouble)).item<double>();
  };
  const double plain = losses([](TrainingArguments&) {});
  CHECK(plain < 0.5);  // the model has learned: guessing gives log 2
  CHECK(losses(&use_fp16) == doctest::Approx(plain).epsilon(0.1));
  CHECK(losses(&use_bfloat16_weights) == doctest::Approx(plain).epsilon(0.1));
}

TEST_CASE("precision: two processes keep identical bfloat16 weights") {
  const Folder folder;
  debug_launcher(
      [&] {
        TrainingArguments args = ten_steps(folder.path, &use_bfloat16_weights);
        const Trained run = train(args);
        const Group group = Accelerator({.cpu = true}).group();
        for (const auto& [name, tensor] : run.weights) {
          const at::Tensor own = tensor.to(at::kFloat);
          multiprocess_checks::require(at::equal(own, group.broadcast(own)), name + " differs");
        }
      },
      2);
}

}  // namespace trainer_precision_test
