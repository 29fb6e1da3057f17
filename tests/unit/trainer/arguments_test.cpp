// Arguments that change how a run proceeds: noise in the embeddings, smaller batches if memory runs
// out, and the end of a run at a loss that is not finite.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/scoped_environment.h"
#include "unit/trainer/tiny.h"

namespace trainer_arguments_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

TrainingArguments arguments(const Folder& folder) {
  TrainingArguments args = short_run(folder.path, 8);
  args.num_train_epochs = 2;
  args.learning_rate = 1e-3;
  return args;
}

std::int64_t rows_of(const TensorDict& batch) { return batch.at("input_ids").size(0); }

// Runs out of memory in training batches with more than `fits` rows. The first batch that fails is
// number `from_call` of them.
struct SmallMemoryModel : BertForSequenceClassification {
  using BertForSequenceClassification::BertForSequenceClassification;
  ModelOutput forward(const TensorDict& batch) override {
    const bool fails = rows_of(batch) > fits && is_training() && ++calls >= from_call;
    TORCH_CHECK_WITH(OutOfMemoryError, !fails, "tried to allocate too much");
    return BertForSequenceClassification::forward(batch);
  }
  std::int64_t fits = 2, from_call = 1, calls = 0;
};

std::shared_ptr<SmallMemoryModel> small_memory(std::int64_t fits, std::int64_t from_call = 1) {
  torch::manual_seed(7);
  auto model = std::make_shared<SmallMemoryModel>(tiny(0));
  model->initialize();
  model->fits = fits;
  model->from_call = from_call;
  return model;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
}

}  // namespace

TEST_CASE("auto_find_batch_size: smaller batches make the steps of the batch that does not fit") {
  const Folder whole, parts;
  Trainer reference(new_model(0), arguments(whole), {.train_dataset = TrainerDataset(rows(22))});
  reference.train();

  TrainingArguments args = arguments(parts);
  args.auto_find_batch_size = true;
  std::string log;
  Trainer trainer(small_memory(3), args,
                  {.train_dataset = TrainerDataset(rows(22)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().global_step == reference.state().global_step);
  CHECK(trainer.args().per_device_train_batch_size == 2);
  CHECK(trainer.args().gradient_accumulation_steps == 4);
  check_close(logged(trainer), logged(reference));
  CHECK(log.find("with batches of 4 and 2 of them in a step") != std::string::npos);
  CHECK(log.find("with batches of 2 and 4 of them in a step") != std::string::npos);
}

TEST_CASE("auto_find_batch_size: a run that has saved continues from its checkpoint") {
  const Folder whole, parts;
  Trainer reference(new_model(0), arguments(whole), {.train_dataset = TrainerDataset(rows(22))});
  reference.train();
  TrainingArguments args = arguments(parts);
  args.auto_find_batch_size = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  std::string log;
  Trainer trainer(small_memory(4, /*from_call=*/4), args,
                  {.train_dataset = TrainerDataset(rows(22)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().steps == 4);  // after the two steps of checkpoint-2
  CHECK_MESSAGE(log.find("continues from ") != std::string::npos, log);
  check_close(logged(trainer), logged(reference));
}

TEST_CASE("auto_find_batch_size: the next run of the Trainer does not continue from a checkpoint") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.auto_find_batch_size = true;
  args.overwrite_output_dir = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  Trainer trainer(small_memory(4, /*from_call=*/4), args,
                  {.train_dataset = TrainerDataset(rows(22)), .log_sink = [](std::string_view) {}});
  CHECK(trainer.train().steps == 4);  // after the two steps of checkpoint-2
  CHECK(trainer.args().resume_from_checkpoint.empty());
  CHECK(trainer.train().steps == 6);
}

TEST_CASE("auto_find_batch_size: a run that starts again begins with the registered objects") {
  struct StepCounter : TrainerCallback {
    std::map<std::string, double> state() const { return {{"steps", steps}}; }
    void set_state(const std::map<std::string, double>& state) { steps = state.at("steps"); }
    void on_step_end(const TrainerEvent&, TrainerControl&, double) override { ++steps; }
    double steps = 5;
  };
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.auto_find_batch_size = true;
  const auto counter = std::make_shared<StepCounter>();
  Trainer trainer(small_memory(4, /*from_call=*/4), args,
                  {.train_dataset = TrainerDataset(rows(22)),
                   .callbacks = {counter},
                   .log_sink = [](std::string_view) {}});
  trainer.accelerator().register_for_checkpointing(*counter);
  CHECK(trainer.train().steps == 6);
  CHECK(counter->steps == 5 + 6);
}

TEST_CASE("auto_find_batch_size: a run that has saved only its weights starts again") {
  const Folder whole, parts;
  Trainer reference(new_model(0), arguments(whole), {.train_dataset = TrainerDataset(rows(22))});
  reference.train();
  TrainingArguments args = arguments(parts);
  args.auto_find_batch_size = true;
  args.save_only_model = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  std::string log;
  Trainer trainer(small_memory(4, /*from_call=*/4), args,
                  {.train_dataset = TrainerDataset(rows(22)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().steps == 6);
  CHECK_MESSAGE(log.find("starts again") != std::string::npos, log);
  check_close(logged(trainer), logged(reference));
  CHECK(fs::exists(parts.path / "checkpoint-6/model.safetensors"));
}

TEST_CASE("auto_find_batch_size: a run whose last batches are dropped starts again") {
  const Folder whole, parts;
  Trainer reference(new_model(0), arguments(whole), {.train_dataset = TrainerDataset(rows(24))});
  reference.train();
  TrainingArguments args = arguments(parts);
  args.auto_find_batch_size = true;
  args.dataloader_drop_last = true;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  std::string log;
  Trainer trainer(small_memory(4, /*from_call=*/3), args,
                  {.train_dataset = TrainerDataset(rows(24)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().steps == 6);
  CHECK_MESSAGE(log.find("starts again") != std::string::npos, log);
  check_close(logged(trainer), logged(reference));

  // Smaller batches cannot continue from the checkpoint that this run is given.
  const Folder resumed;
  args.output_dir = resumed.path.string();
  args.resume_from_checkpoint = (parts.path / "checkpoint-2").string();
  args.per_device_train_batch_size = 4;
  args.gradient_accumulation_steps = 2;
  Trainer again(small_memory(3), args,
                {.train_dataset = TrainerDataset(rows(24)), .log_sink = [](std::string_view) {}});
  CHECK(code_of([&] { again.train(); }) == "trainer.out-of-memory");
  CHECK(again.args().per_device_train_batch_size == 4);
}

TEST_CASE("auto_find_batch_size: a run that has saved inside a window begins the window again") {
  // Saves inside the window after a step, as long as the batches have their first size.
  struct WindowSaver : TrainerCallback {
    explicit WindowSaver(std::int64_t step) : step(step) {}
    void on_substep_end(const TrainerEvent& event, TrainerControl& control) override {
      control.should_save =
          event.state.global_step == step && event.args.per_device_train_batch_size == 8;
    }
    std::int64_t step;
  };
  const Folder whole, parts;
  TrainingArguments args = arguments(whole);
  args.gradient_accumulation_steps = 2;
  Trainer reference(new_model(0), args, {.train_dataset = TrainerDataset(rows(32))});
  reference.train();
  args.output_dir = parts.path.string();
  args.auto_find_batch_size = true;
  std::string log;
  Trainer trainer(small_memory(4, /*from_call=*/4), args,
                  {.train_dataset = TrainerDataset(rows(32)),
                   .callbacks = {std::make_shared<WindowSaver>(1)},
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().steps == 3);  // after the step of checkpoint-1
  CHECK_MESSAGE(log.find("was saved begins again") != std::string::npos, log);
  check_close(logged(trainer), logged(reference));

  // A job that was restarted does the same with the newest checkpoint that it has saved.
  const ScopedTorchrunVariables job("nightly", "1");
  const Folder restarted;
  args.output_dir = restarted.path.string();
  args.resume_from_checkpoint = (parts.path / "checkpoint-1").string();
  args.per_device_train_batch_size = 8;
  args.gradient_accumulation_steps = 2;
  Trainer again(small_memory(4, /*from_call=*/3), args,
                {.train_dataset = TrainerDataset(rows(32)),
                 .callbacks = {std::make_shared<WindowSaver>(2)},
                 .log_sink = [](std::string_view) {}});
  CHECK(again.train().steps == 2);
  check_close(logged(again), logged(reference));
}

TEST_CASE("auto_find_batch_size: one row that does not fit is the error of a plain run") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.auto_find_batch_size = true;
  Trainer trainer(small_memory(0), args,
                  {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  CHECK(code_of([&] { trainer.train(); }) == "trainer.out-of-memory");
}

TEST_CASE("neftune_noise_alpha: it changes the training loss, and a run resumes exactly") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  const auto first_loss = [&](std::optional<double> alpha) {
    const Folder own;
    TrainingArguments changed = arguments(own);
    changed.neftune_noise_alpha = alpha;
    Trainer trainer(new_model(0), changed, {.train_dataset = TrainerDataset(rows(22))});
    trainer.train();
    return logged(trainer).front();
  };
  CHECK(first_loss({}) == first_loss(0));
  CHECK(first_loss(5) != first_loss({}));
  CHECK(first_loss(5) == first_loss(5));

  args.neftune_noise_alpha = 5;
  const auto model = new_model();
  Trainer straight(model, args, {.train_dataset = TrainerDataset(rows(22))});
  straight.train();
  args.resume_from_checkpoint = (folder.path / "checkpoint-2").string();
  const auto again = new_model();
  Trainer resumed(again, args,
                  {.train_dataset = TrainerDataset(rows(22)), .log_sink = [](std::string_view) {}});
  resumed.train();
  const TensorDict expected = model->state_dict();
  for (const auto& [name, tensor] : again->state_dict())
    CHECK(at::equal(tensor, expected.at(name)));
}

TEST_CASE("neftune_noise_alpha: a model adds noise while it trains, and only then") {
  const auto model = new_model<BertForTokenClassification>(0);
  TensorDict batch = rows(8).columns();
  batch.erase("labels");
  const torch::NoGradGuard no_grad;
  model->eval();
  const at::Tensor still = model->forward(batch).logits;
  CHECK(model->set_embedding_noise(4));
  CHECK(at::equal(model->forward(batch).logits, still));
  model->train();
  CHECK_FALSE(at::equal(model->forward(batch).logits, still));
  CHECK_FALSE(at::equal(model->forward(batch).logits, model->forward(batch).logits));
  CHECK(model->set_embedding_noise(0));
  CHECK(at::equal(model->forward(batch).logits, still));
}

TEST_CASE("neftune_noise_alpha: a run that is refused leaves the model without noise") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.neftune_noise_alpha = 5;
  args.activation_offloading = true;  // refused on the CPU
  const auto model = new_model<BertForTokenClassification>(0);
  TensorDict batch = rows(8).columns();
  batch.erase("labels");
  model->train();
  const at::Tensor before = model->forward(batch).logits.detach();
  Trainer trainer(model, args, {.train_dataset = TrainerDataset(rows(8))});
  CHECK(code_of([&] { trainer.train(); }) == "autograd.offload");
  model->train();
  CHECK(at::equal(model->forward(batch).logits, before));
}

TEST_CASE("neftune_noise_alpha: a module without embeddings is refused") {
  struct Plain : torch::nn::Module {
    Plain() { register_module("layer", layer); }
    torch::nn::Linear layer{12, 1};
  };
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.neftune_noise_alpha = 5;
  Trainer trainer(
      std::make_shared<Plain>(), args,
      {.train_dataset = TrainerDataset(rows(8)),
       .compute_loss = [](Plain& net, const TensorDict& batch) {
         return ModelOutput{.loss = net.layer(batch.at("input_ids").to(at::kFloat)).mean()};
       }});
  CHECK(code_of([&] { trainer.train(); }) == "trainer.embedding-noise");
}

TEST_CASE("enable_jit_checkpoint: a run that a signal stops saves at that step, once") {
  struct SignallingCallback : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl& control, double) override {
      if (event.state.global_step != 3) return;
      control.should_training_stop = true;
      control.stop_signal = SIGTERM;
    }
    void on_save(const TrainerEvent&, TrainerControl&) override { ++saves; }
    int saves = 0;
  };
  for (const bool enabled : {true, false}) {
    CAPTURE(enabled);
    const Folder folder;
    TrainingArguments args = arguments(folder);
    args.enable_jit_checkpoint = enabled;
    const auto signal = std::make_shared<SignallingCallback>();
    Trainer trainer(new_model(), args,
                    {.train_dataset = TrainerDataset(rows(64)),
                     .callbacks = {signal},
                     .log_sink = [](std::string_view) {}});
    CHECK(trainer.train().stop_signal == SIGTERM);
    CHECK(trainer.state().global_step == 3);
    CHECK(signal->saves == (enabled ? 1 : 0));
    CHECK(fs::exists(folder.path / "checkpoint-3/training_position.json") == enabled);
  }
}

TEST_CASE("stop_on_nonfinite_loss: the run ends before the optimizer steps with the loss") {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.stop_on_nonfinite_loss = true;
  struct BadBatch : BertForSequenceClassification {
    using BertForSequenceClassification::BertForSequenceClassification;
    ModelOutput forward(const TensorDict& batch) override {
      ModelOutput out = BertForSequenceClassification::forward(batch);
      if (++calls == 3) out.loss = out.loss * NAN;
      return out;
    }
    int calls = 0;
  };
  struct WeightRecorder : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      weights.clear();
      for (const at::Tensor& each : event.model.parameters())
        weights.push_back(each.detach().clone());
      ++steps;
    }
    std::vector<at::Tensor> weights;
    int steps = 0;
  };
  const auto model = std::make_shared<BadBatch>(tiny());
  model->initialize();
  const auto recorder = std::make_shared<WeightRecorder>();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(32)),
                   .callbacks = {recorder},
                   .log_sink = [](std::string_view) {}});
  CHECK(code_of([&] { trainer.train(); }) == "trainer.nonfinite-loss");
  CHECK(recorder->steps == 2);
  const std::vector<at::Tensor> now = model->parameters();
  REQUIRE(now.size() == recorder->weights.size());
  for (std::size_t i = 0; i < now.size(); ++i) CHECK(at::equal(now[i], recorder->weights[i]));
}

}  // namespace trainer_arguments_test
