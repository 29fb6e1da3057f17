// A bag of words learns the sections of Debian packages: the port of text_classification.py.
//
//   text_classification [FOLDER]    with train.tsv and eval.tsv; examples/data/debian_sections
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "report.h"

using namespace torch::nn;

struct BagOfWords : Module {
  BagOfWords(std::int64_t words, std::int64_t classes)
      : embedding(
            register_module("embedding", Embedding(EmbeddingOptions(words, 64).padding_idx(0)))),
        classifier(register_module("classifier", Linear(64, classes))) {}

  hasten::ModelOutput forward(const hasten::TensorDict& batch) {
    const auto mask = batch.at("attention_mask").unsqueeze(-1).to(torch::kFloat);
    const auto mean = (embedding(batch.at("input_ids")) * mask).sum(1) / mask.sum(1);
    const auto logits = classifier(mean);
    return {.loss = functional::cross_entropy(logits, batch.at("labels")), .logits = logits};
  }

  Embedding embedding;
  Linear classifier;
};

using Words = std::map<std::string, std::int32_t>;

// Numbers the words that occur more than once; 0 is padding, 1 is any other word.
Words vocabulary(const std::vector<std::string>& texts) {
  std::map<std::string, int> counts;
  for (const std::string& text : texts)
    for (const std::string& word : hasten::split(text, ' ')) ++counts[word];
  Words words;
  std::int32_t number = 2;
  for (const auto& [word, count] : counts)
    if (count > 1) words[word] = number++;
  return words;
}

hasten::TrainerDataset rows(const hasten::TextTable& table, const Words& words,
                            const std::vector<std::string>& classes) {
  hasten::TokenDataset dataset;
  for (const std::string& text : table.column("text")) {
    std::vector<std::int32_t> ids;
    for (const std::string& word : hasten::split(text, ' '))
      ids.push_back(words.contains(word) ? words.at(word) : 1);
    dataset.push_back(ids);
  }
  dataset.set_labels(torch::tensor(table.classes("label", classes).ids));
  return hasten::TrainerDataset(std::move(dataset), hasten::DataCollatorWithPadding());
}

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "examples/data/debian_sections";
  const hasten::TextTable train = hasten::read_tsv(folder / "train.tsv"),
                          eval = hasten::read_tsv(folder / "eval.tsv");
  const Words words = vocabulary(train.column("text"));
  const std::vector<std::string> classes = train.class_names("label");

  torch::manual_seed(42);
  const auto model = std::make_shared<BagOfWords>(static_cast<std::int64_t>(words.size()) + 2,
                                                  static_cast<std::int64_t>(classes.size()));
  const hasten::TemporaryDirectory out;
  hasten::Trainer trainer(model,
                          {.output_dir = out.path() / "run",
                           .per_device_train_batch_size = 32,
                           .per_device_eval_batch_size = 64,
                           .num_train_epochs = 8,
                           .learning_rate = 1e-2,
                           .use_cpu = true,
                           .eval_strategy = hasten::IntervalStrategy::epoch,
                           .save_strategy = hasten::SaveStrategy::epoch,
                           .save_total_limit = 1,
                           .load_best_model_at_end = true,
                           .metric_for_best_model = "accuracy"},
                          {.train_dataset = rows(train, words, classes),
                           .eval_dataset = rows(eval, words, classes),
                           .compute_metrics = std::make_shared<hasten::Accuracy>(),
                           .callbacks = {std::make_shared<hasten::EarlyStoppingCallback>(2)}});
  trainer.train();
  print_evaluations(trainer, {"loss", "accuracy"});
  std::cout << "best model: accuracy " << hasten::fixed(trainer.evaluate().at("eval_accuracy"), 4)
            << '\n';
}
