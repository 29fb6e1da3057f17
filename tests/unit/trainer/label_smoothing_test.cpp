// Label smoothing is refused for labels that are not one class each, instead of being left out.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "hasten/models/gpt2.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_label_smoothing_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kRows = 8;

// Rows of 12 tokens with these labels.
ColumnDataset rows_with(const at::Tensor& labels) {
  torch::manual_seed(11);
  const at::Tensor ids = at::randint(5, 60, {kRows, 12});
  return ColumnDataset(
      {{"input_ids", ids}, {"attention_mask", at::ones_like(ids)}, {"labels", labels}});
}

TrainingArguments smoothed(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 1;
  args.label_smoothing_factor = 0.1;
  return args;
}

BertConfig bert(std::int64_t num_labels, const std::string& problem_type = "") {
  BertConfig config = tiny(0);
  config.num_labels = num_labels;
  config.problem_type = problem_type;
  return config;
}

template <class Model, class Config>
std::shared_ptr<PreTrainedModel> model_of(const Config& config) {
  auto model = std::make_shared<Model>(config);
  model->initialize();
  return model;
}

TrainerParts parts_for(const at::Tensor& labels) {
  return {.train_dataset = TrainerDataset(rows_with(labels)), .log_sink = [](std::string_view) {}};
}

// Returns the code of the error of a run of one step.
std::string code_of_run(const std::shared_ptr<PreTrainedModel>& model, const at::Tensor& labels) {
  const Folder folder;
  Trainer trainer(model, smoothed(folder.path), parts_for(labels));
  return code_of([&] { trainer.train(); });
}

// Classifies rows by one logit, and computes its own loss.
struct OneLogit : torch::nn::Module {
  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor logits =
        weight * batch.at("input_ids").to(at::kFloat).mean(1, /*keepdim=*/true);
    return {.loss = at::binary_cross_entropy_with_logits(logits.squeeze(1),
                                                         batch.at("labels").to(at::kFloat)),
            .logits = logits};
  }
  at::Tensor weight = register_parameter("weight", torch::ones({}));
};

}  // namespace

TEST_CASE("label smoothing: a model that is configured for other labels is refused at once") {
  const at::Tensor numbers = at::rand({kRows}), several = at::ones({kRows, 3});
  for (const auto& [config, labels] :
       {std::pair{bert(1), numbers}, std::pair{bert(3, "regression"), several},
        std::pair{bert(3, "multi_label_classification"), several}}) {
    CAPTURE(config.problem_type);
    const Folder folder;
    const auto model = model_of<BertForSequenceClassification>(config);
    const TrainerParts parts = parts_for(labels);
    CHECK(code_of([&] { Trainer(model, smoothed(folder.path), parts); }) ==
          "trainer.label-smoothing");
    CHECK_FALSE(fs::exists(folder.path));
  }
}

TEST_CASE("label smoothing: labels that are not one class each are refused in the first batch") {
  // The labels decide that there are several of them in a row.
  CHECK(code_of_run(model_of<BertForSequenceClassification>(bert(3)), at::ones({kRows, 3})) ==
        "trainer.label-smoothing");
  const GPT2Config regression{.vocab_size = 60,
                              .n_positions = 16,
                              .n_embd = 16,
                              .n_layer = 1,
                              .n_head = 2,
                              .pad_token_id = 0,
                              .num_labels = 1};
  for (const at::ScalarType type : {at::kFloat, at::kLong}) {
    CHECK(code_of_run(model_of<GPT2ForSequenceClassification>(regression),
                      at::ones({kRows}, type)) == "trainer.label-smoothing");
  }
  const Folder folder;
  Trainer own(std::make_shared<OneLogit>(), smoothed(folder.path),
              parts_for(at::ones({kRows}, at::kLong)));
  CHECK(code_of([&] { own.train(); }) == "trainer.label-smoothing");
}

TEST_CASE("label smoothing: classes are smoothed, whatever the problem type of a language model") {
  const at::Tensor classes = at::arange(kRows).remainder(3);
  CHECK(code_of_run(model_of<BertForSequenceClassification>(bert(3)), classes) == "none");
  // The configuration may be that of a regression from which the model was made.
  CHECK(code_of_run(model_of<BertForMaskedLM>(bert(1, "regression")),
                    at::randint(5, 60, {kRows, 12})) == "none");
}

}  // namespace trainer_label_smoothing_test
