// Runs that train an adapter, and runs whose losses need no logits.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/task_collators.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/lora.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/data/error_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_adapter_training_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<PreTrainedModel> adapted_model(double dropout = 0.1) {
  auto model = new_model(dropout);
  add_lora(*model, {.r = 2, .dropout = dropout, .modules_to_save = {"classifier"}});
  return model;
}

TrainingArguments eight_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 8;
  args.learning_rate = 1e-2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 4;
  return args;
}

TensorDict weights_of(const torch::nn::Module& module) {
  TensorDict weights;
  for (const auto& item : module.named_parameters())
    weights[item.key()] = item.value().detach().clone();
  return weights;
}

TensorDict train(const std::shared_ptr<PreTrainedModel>& model, const TrainingArguments& args) {
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)), .log_sink = [](std::string_view) {}});
  trainer.train();
  trainer.save_model();
  return weights_of(*model);
}

bool equal(const TensorDict& a, const TensorDict& b) {
  for (const auto& [name, tensor] : a)
    if (!at::equal(tensor, b.at(name))) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("adapter: a checkpoint has the adapter alone, and resuming continues exactly") {
  const Folder folder, resumed;
  const TensorDict before = weights_of(*adapted_model());
  const TensorDict straight = train(adapted_model(), eight_steps(folder.path));
  for (const auto& [name, tensor] : straight) {
    CAPTURE(name);
    const bool is_trained =
        name.find("lora_") != std::string::npos || name.starts_with("classifier");
    const bool is_equal = at::equal(tensor, before.at(name));
    CHECK(is_equal == !is_trained);
  }
  const fs::path checkpoint = folder.path / "checkpoint-4";
  CHECK(fs::exists(checkpoint / "adapter_config.json"));
  CHECK_FALSE(fs::exists(checkpoint / "model.safetensors"));
  std::uintmax_t trained = 0;
  for (const auto& [name, tensor] : straight)
    if (!at::equal(tensor, before.at(name))) trained += tensor.nbytes();
  CHECK(fs::file_size(checkpoint / "adapter_model.safetensors") < trained + 2000);

  TrainingArguments args = eight_steps(folder.path);
  args.resume_from_checkpoint = checkpoint.string();
  CHECK(equal(train(adapted_model(), args), straight));

  const auto loaded = new_model();
  load_lora(*loaded, folder.path);
  CHECK(equal(weights_of(*loaded), straight));
}

namespace {

std::shared_ptr<PreTrainedModel> model_with(const LoraOptions& options) {
  auto model = new_model();
  add_lora(*model, options);
  return model;
}

// Runs the Trainer, and returns its log.
std::string log_of(const std::shared_ptr<PreTrainedModel>& model, const TrainingArguments& args) {
  std::string log;
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  trainer.train();
  return log;
}

}  // namespace

TEST_CASE("adapter: a resumed run reports another dropout, and refuses other options") {
  const Folder folder;
  TrainingArguments args = eight_steps(folder.path);
  const LoraOptions options{.r = 2, .dropout = 0.1, .modules_to_save = {"classifier"}};
  train(model_with(options), args);
  args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
  CHECK_FALSE(contains(log_of(model_with(options), args), "lora_dropout"));
  LoraOptions changed = options;
  changed.dropout = 0.2;
  const std::string log = log_of(model_with(changed), args);
  CHECK_MESSAGE(contains(log, "lora_dropout is 0.2 and was 0.1 when the checkpoint was made"), log);

  std::vector<LoraOptions> refused(6, options);
  refused[0].r = 3;
  refused[1].alpha = options.alpha + 1;
  refused[2].use_rslora = true;
  refused[3].bias = LoraBias::all;
  refused[4].target_modules = {"query"};
  refused[5].modules_to_save = {"classifier", "pooler"};
  for (const LoraOptions& other : refused)
    CHECK(code_of([&] { log_of(model_with(other), args); }) == "models.lora-file");
}

TEST_CASE("adapter: a resumed run reports a model with other weights below the adapters") {
  const Folder folder;
  TrainingArguments args = eight_steps(folder.path);
  train(adapted_model(), args);
  const fs::path checkpoint = folder.path / "checkpoint-4";
  args.resume_from_checkpoint = checkpoint.string();
  const auto other_model = [](const std::string& changed) {
    auto model = adapted_model();
    const torch::NoGradGuard no_grad;
    model->named_parameters()[changed].add_(0.5);
    return model;
  };
  const char* const report = "the weights of the model below the adapters differ";
  CHECK_FALSE(contains(log_of(adapted_model(), args), report));
  // The checkpoint has this weight, so another initial value has no effect.
  CHECK_FALSE(contains(log_of(other_model("classifier.weight"), args), report));
  const std::string base = "bert.embeddings.word_embeddings.weight",
                    adapted = "bert.encoder.layer.0.attention.self.query.weight";
  for (const std::string& name : {base, adapted}) {
    CAPTURE(name);
    const std::string log = log_of(other_model(name), args);
    CHECK_MESSAGE(contains(log, report), log);
    CHECK(contains(log, checkpoint.string()));
  }
  // A resumed run saves the digest of its own model.
  args.resume_from_checkpoint = (folder.path / "checkpoint-8").string();
  args.max_steps = 9;
  CHECK_FALSE(contains(log_of(other_model(adapted), args), report));
  CHECK(contains(log_of(adapted_model(), args), report));

  // Checkpoints of earlier versions have no digest.
  args.resume_from_checkpoint = checkpoint.string();
  fs::remove(checkpoint / "base_weights.json");
  write_manifest(checkpoint);
  CHECK_FALSE(contains(log_of(other_model(base), args), report));

  // A run that trains the whole model saves no digest, because the checkpoint has all weights.
  const Folder whole;
  train(new_model(), eight_steps(whole.path));
  CHECK_FALSE(fs::exists(whole.path / "checkpoint-4" / "base_weights.json"));
}

TEST_CASE("adapter: a saved adapter replaces a saved model, and vice versa") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 1;
  args.overwrite_output_dir = true;
  train(new_model(), args);
  CHECK(fs::exists(folder.path / "model.safetensors"));
  train(adapted_model(), args);
  CHECK_FALSE(fs::exists(folder.path / "model.safetensors"));
  CHECK(fs::exists(folder.path / "adapter_model.safetensors"));
  const auto model = adapted_model();
  Trainer trainer(model, args, {.log_sink = [](std::string_view) {}});
  CHECK(trainer.has_saved_model());
  train(new_model(), args);
  CHECK(fs::exists(folder.path / "model.safetensors"));
  CHECK_FALSE(fs::exists(folder.path / "adapter_model.safetensors"));
}

TEST_CASE("adapter: the best one is loaded at the end, and accumulation and bf16 compose") {
  const Folder folder;
  TrainingArguments args = eight_steps(folder.path);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 4;
  args.load_best_model_at_end = true;
  args.gradient_accumulation_steps = 2;
  args.bf16 = true;
  const auto model = adapted_model();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .eval_dataset = TrainerDataset(rows(8)),
                   .log_sink = [](std::string_view) {}});
  const TrainOutput out = trainer.train();
  CHECK(out.global_step == 8);
  CHECK(std::isfinite(out.training_loss));
  const auto best = new_model();
  load_lora(*best, trainer.state().best_model_checkpoint);
  CHECK(equal(weights_of(*best), weights_of(*model)));
}

TEST_CASE("adapter: two processes train the same adapter as one") {
  const auto run = [](int processes, std::int64_t batch) {
    const Folder folder;
    const fs::path path = folder.path;
    const auto work = [path, batch] {
      TrainingArguments args = short_run(path, batch);
      args.max_steps = 4;
      args.train_sampling_strategy = SamplingStrategy::sequential;
      const auto model = adapted_model(/*dropout=*/0);
      Trainer trainer(
          model, args,
          {.train_dataset = TrainerDataset(rows(16)), .log_sink = [](std::string_view) {}});
      trainer.train();
      trainer.save_model();
    };
    if (processes == 1) {
      work();
    } else {
      notebook_launcher(work, {.num_processes = processes});
    }
    const auto model = adapted_model(0);
    load_lora(*model, path);
    return weights_of(*model);
  };
  const TensorDict two = run(2, 2), one = run(1, 4);
  for (const auto& [name, tensor] : one)
    CHECK((tensor - two.at(name)).abs().max().item<double>() < 1e-5);
}

TEST_CASE("loss only: the Trainer leaves out logits unless something reads them") {
  struct LogitsRecordingModel : BertForMaskedLM {
    using BertForMaskedLM::BertForMaskedLM;
    ModelOutput forward(const TensorDict& batch) override {
      ModelOutput out = BertForMaskedLM::forward(batch);
      had_logits = out.logits.defined();
      return out;
    }
    bool had_logits = false;
  };
  struct Derived : Trainer {
    using Trainer::Trainer;
  };
  ColumnDataset data = rows(8);
  TensorDict columns = data.columns();
  columns["labels"] = columns["input_ids"].clone();
  const ColumnDataset masked(columns);
  const auto logits = [&]<class TrainerClass>(TrainerClass*, auto change) {
    const Folder folder;
    TrainingArguments args = short_run(folder.path);
    args.max_steps = 1;
    change(args);
    auto model = std::make_shared<LogitsRecordingModel>(tiny());
    model->initialize();
    TrainerClass trainer(
        std::shared_ptr<PreTrainedModel>(model), args,
        {.train_dataset = TrainerDataset(masked), .log_sink = [](std::string_view) {}});
    trainer.train();
    return model->had_logits;
  };
  Trainer* const own = nullptr;
  Derived* const derived = nullptr;
  CHECK_FALSE(logits(own, [](TrainingArguments&) {}));
  CHECK(logits(own, [](TrainingArguments& args) { args.use_liger_kernel = false; }));
  CHECK(logits(own, [](TrainingArguments& args) { args.label_smoothing_factor = 0.1; }));
  CHECK(logits(derived, [](TrainingArguments&) {}));
  CHECK_FALSE(logits(derived, [](TrainingArguments& args) { args.use_liger_kernel = true; }));
  CHECK(code_of([&] {
          logits(own, [](TrainingArguments& args) {
            args.label_smoothing_factor = 0.1;
            args.use_liger_kernel = true;
          });
        }) == "trainer.loss-only");
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.use_liger_kernel = true;
  Trainer classifier(
      new_model(), args,
      {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  CHECK(code_of([&] { classifier.train(); }) == "trainer.loss-only");
}

TEST_CASE("packed batch: a model that cannot take one is refused by name") {
  struct Bag : torch::nn::Module {
    torch::nn::Embedding table = register_module("table", torch::nn::Embedding(60, 2));
    ModelOutput forward(const TensorDict& batch) {
      return {.loss = table(batch.at("input_ids")).mean()};
    }
  };
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 1;
  struct Texts {
    std::size_t size() const { return 4; }
    TensorDict get(std::size_t index) const {
      return {{"input_ids", at::ones({static_cast<std::int64_t>(index) + 3}, at::kLong)}};
    }
  };
  Trainer trainer(std::make_shared<Bag>(), args,
                  {.train_dataset = TrainerDataset(
                       Texts(), DataCollatorWithFlattening{.return_flash_attn_kwargs = true}),
                   .log_sink = [](std::string_view) {}});
  try {
    trainer.train();
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == "trainer.packed-batch");
    CHECK(std::string(error.what()).find("Bag") != std::string::npos);
  }
}

namespace {

// Records whether the batches of training and of evaluation were packed.
template <class Model>
struct PackingRecorder : Model {
  using Model::Model;
  ModelOutput forward(const TensorDict& batch) override {
    bool& packed = this->is_training() ? trained_packed : evaluated_packed;
    packed = batch.contains(kPackedRows);
    return Model::forward(batch);
  }
  bool trained_packed = false, evaluated_packed = false;
};

// Returns 12 rows of 12 tokens; the last tokens of every second row are padding. Their labels are
// the ids if there is a label for each token.
ColumnDataset rows_with_padding(bool has_token_labels) {
  TensorDict columns = rows(12).columns();
  at::Tensor mask = columns.at("attention_mask").clone();
  for (std::int64_t row = 0; row < 12; row += 2) mask[row].slice(0, 5 + row / 2).zero_();
  columns["attention_mask"] = mask;
  if (has_token_labels) columns["labels"] = columns.at("input_ids").masked_fill(mask.eq(0), -100);
  return ColumnDataset(columns);
}

struct FreeRun {
  std::vector<double> losses;
  double evaluation = 0, tokens = 0;
  bool trained_packed = false, evaluated_packed = false;
};

template <class Model, class Config>
FreeRun run_of(const Config& config, bool has_token_labels, double smoothing, bool padding_free) {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.padding_free = padding_free;
  args.max_steps = 3;
  args.gradient_accumulation_steps = 2;
  args.label_smoothing_factor = smoothing;
  args.include_num_input_tokens_seen = CountTokens::all;
  torch::manual_seed(7);
  const auto model = std::make_shared<PackingRecorder<Model>>(config);
  model->initialize();
  const TrainerDataset data(rows_with_padding(has_token_labels));
  Trainer trainer(
      std::shared_ptr<PreTrainedModel>(model), args,
      {.train_dataset = data, .eval_dataset = data, .log_sink = [](std::string_view) {}});
  trainer.train();
  FreeRun run{.losses = logged(trainer)};
  run.evaluation = trainer.evaluate().at("eval_loss");
  run.tokens = static_cast<double>(trainer.state().num_input_tokens_seen);
  run.trained_packed = model->trained_packed;
  run.evaluated_packed = model->evaluated_packed;
  return run;
}

template <class Model, class Config>
void check_padding_free(const Config& config, bool has_token_labels, double smoothing) {
  CAPTURE(smoothing);
  const FreeRun padded = run_of<Model>(config, has_token_labels, smoothing, false),
                packed = run_of<Model>(config, has_token_labels, smoothing, true);
  CHECK_FALSE(padded.trained_packed);
  CHECK_FALSE(padded.evaluated_packed);
  CHECK(packed.trained_packed);
  CHECK(packed.evaluated_packed);         // no metric reads the logits
  CHECK(packed.tokens == padded.tokens);  // with the padding, as without padding_free
  REQUIRE(packed.losses.size() == 3);
  for (std::size_t step = 0; step < 3; ++step)
    CHECK(packed.losses[step] == doctest::Approx(padded.losses[step]).epsilon(1e-4));
  CHECK(packed.evaluation == doctest::Approx(padded.evaluation).epsilon(1e-4));
}

}  // namespace

TEST_CASE("padding_free: a run has the losses of a run with padding") {
  check_padding_free<BertForSequenceClassification>(tiny(0), false, 0);
  const GPT2Config gpt2{.vocab_size = 60,
                        .n_positions = 16,
                        .n_embd = 16,
                        .n_layer = 1,
                        .n_head = 2,
                        .resid_pdrop = 0,
                        .embd_pdrop = 0,
                        .attn_pdrop = 0};
  for (const double smoothing : {0.0, 0.1})
    check_padding_free<GPT2LMHeadModel>(gpt2, true, smoothing);
}

namespace {

struct FreeEvaluation {
  at::Tensor predictions, label_ids;
  Metrics predicted, evaluated;
  bool is_packed = false;
};

// Evaluates the rows in batches of 5. The metric is the mean of all outputs, also of those for
// padding.
template <class TrainerClass = Trainer, class Model>
FreeEvaluation evaluation_of(const std::shared_ptr<PackingRecorder<Model>>& model,
                             const ColumnDataset& data, bool padding_free, bool loss_only = false) {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 5;
  args.padding_free = padding_free;
  args.prediction_loss_only = loss_only;
  const auto metric = metric_from_function([](const EvalPrediction& all) -> Metrics {
    return {{"mean", all.predictions.mean().item<double>()},
            {"rows", static_cast<double>(all.label_ids.size(0))}};
  });
  TrainerClass trainer(std::shared_ptr<PreTrainedModel>(model), args,
                       {.compute_metrics = metric, .log_sink = [](std::string_view) {}});
  PredictionOutput out = trainer.predict(TrainerDataset(data));
  return {.predictions = out.predictions,
          .label_ids = out.label_ids,
          .predicted = out.metrics,
          .evaluated = trainer.evaluate(TrainerDataset(data)),
          .is_packed = model->evaluated_packed};
}

template <class Model>
std::shared_ptr<PackingRecorder<Model>> new_recorder() {
  torch::manual_seed(7);
  const auto model = std::make_shared<PackingRecorder<Model>>(tiny(/*dropout=*/0));
  model->initialize();
  return model;
}

}  // namespace

TEST_CASE("padding_free: evaluations of texts have no padding and the results with padding") {
  struct Derived : Trainer {
    using Trainer::Trainer;
  };
  const auto model = new_recorder<BertForSequenceClassification>();
  const ColumnDataset data = rows_with_padding(false);
  const FreeEvaluation padded = evaluation_of(model, data, false),
                       packed = evaluation_of(model, data, true);
  CHECK_FALSE(padded.is_packed);
  CHECK(packed.is_packed);
  CHECK(packed.predictions.sizes() == at::IntArrayRef({12, 2}));
  CHECK(at::allclose(packed.predictions, padded.predictions, 1e-5, 1e-6));
  CHECK(at::equal(packed.label_ids, padded.label_ids));
  for (const char* const name : {"test_loss", "test_mean", "test_rows"})
    CHECK(packed.predicted.at(name) == doctest::Approx(padded.predicted.at(name)).epsilon(1e-4));
  for (const char* const name : {"eval_loss", "eval_mean", "eval_rows"})
    CHECK(packed.evaluated.at(name) == doctest::Approx(padded.evaluated.at(name)).epsilon(1e-4));
  // A derived class may read the batches and outputs of its steps.
  CHECK_FALSE(evaluation_of<Derived>(model, data, true).is_packed);
}

TEST_CASE("padding_free: evaluations that read outputs of tokens keep the padding") {
  const auto model = new_recorder<BertForTokenClassification>();
  TensorDict columns = rows_with_padding(true).columns();
  columns["labels"] = columns.at("labels").clamp_max(1);  // there are two classes
  const ColumnDataset data(columns);
  const FreeEvaluation padded = evaluation_of(model, data, false),
                       kept = evaluation_of(model, data, true);
  CHECK_FALSE(kept.is_packed);
  CHECK(at::equal(kept.predictions, padded.predictions));
  CHECK(kept.predicted.at("test_loss") == padded.predicted.at("test_loss"));
  CHECK(kept.evaluated.at("eval_loss") == padded.evaluated.at("eval_loss"));
  const FreeEvaluation loss = evaluation_of(model, data, true, /*loss_only=*/true);
  CHECK(loss.is_packed);
  CHECK_FALSE(loss.predictions.defined());
  for (const auto& [with_loss, of_padded] :
       {std::pair(loss.predicted.at("test_loss"), padded.predicted.at("test_loss")),
        std::pair(loss.evaluated.at("eval_loss"), padded.evaluated.at("eval_loss"))})
    CHECK(with_loss == doctest::Approx(of_padded).epsilon(1e-4));
}

TEST_CASE("padding_free: outputs of tokens of a model that denies them are an error") {
  struct Mistaken : BertForTokenClassification {
    using BertForTokenClassification::BertForTokenClassification;
    bool has_outputs_of_tokens() const override { return false; }
  };
  const auto model = new_recorder<Mistaken>();
  TensorDict columns = rows_with_padding(true).columns();
  columns["labels"] = columns.at("labels").clamp_max(1);
  CHECK(code_of([&] { evaluation_of(model, ColumnDataset(columns), true); }) ==
        "trainer.padding-free");
}

TEST_CASE("padding_free: a run that cannot pack rows is refused before its first step") {
  const auto refused = [](auto model, TrainerParts parts) {
    const Folder folder;
    TrainingArguments args = short_run(folder.path);
    args.padding_free = true;
    args.max_steps = 1;
    parts.log_sink = [](std::string_view) {};
    Trainer trainer(std::move(model), args, std::move(parts));
    return code_of([&] { trainer.train(); }) == "trainer.padding-free" &&
           code_of([&] { trainer.evaluate(TrainerDataset(rows_with_padding(false))); }) ==
               "trainer.padding-free";
  };
  const TrainerDataset data(rows_with_padding(false));
  GPT2Config config{.vocab_size = 60, .n_positions = 16, .n_embd = 16, .n_layer = 1, .n_head = 2};
  config.pad_token_id = 0;
  const std::shared_ptr<PreTrainedModel> classifier =
      std::make_shared<GPT2ForSequenceClassification>(config);
  CHECK(refused(classifier, {.train_dataset = data}));
  // A device whose batches must keep one shape.
  struct StaticDevice final : Device {
    static DeviceTraits traits_of_device() {
      DeviceTraits own = device_of(at::kCPU).traits();
      own.needs_static_shapes = true;
      return own;
    }
    StaticDevice() : Device(at::kCPU, traits_of_device()) {}
  };
  const StaticDevice device;
  const DeviceReplacement replacement(device);
  CHECK(refused(new_model(), {.train_dataset = data}));
}

}  // namespace trainer_adapter_training_test
