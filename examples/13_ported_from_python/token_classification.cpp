// A small BERT learns a tag for each word: the port of token_classification.py.
//
//   token_classification [FOLDER]    with a model, its vocab.txt, train.jsonl and eval.jsonl
#include <hasten/data/tagged_words.h>
#include <hasten/hasten.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "report.h"

const std::vector<std::string> kTags = {"B-LOC", "B-PER", "I-PER", "O"};

// Gives the tag of a word to its first token.
hasten::TrainerDataset tokenized(const std::filesystem::path& path,
                                 const hasten::BertTokenizer& tokenizer) {
  const hasten::TaggedWords texts = hasten::read_tagged_words(path);
  const std::vector<std::int64_t> tags = texts.tags().classes("tags", kTags).ids;
  hasten::TokenDataset dataset;
  for (std::int64_t text = 0; text < texts.rows(); ++text) {
    const hasten::Encoding row = tokenizer.encode_words(
        texts.words(text), {.truncation = hasten::Truncation::longest_first, .max_length = 24});
    std::vector<std::int32_t> labels;
    std::int32_t before = -1;
    for (const std::int32_t word : row.word_ids) {
      const auto at = static_cast<std::size_t>(texts.first_word(text) + word);
      labels.push_back(word < 0 || word == before ? -100 : static_cast<std::int32_t>(tags[at]));
      before = word;
    }
    dataset.push_back(row.input_ids, row.token_type_ids, labels);
  }
  return hasten::TrainerDataset(std::move(dataset), hasten::DataCollatorForTokenClassification());
}

int main(int argc, char** argv) {
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : "tests/oracle/data/tasks/token_classification";
  const auto tokenizer = hasten::BertTokenizer::from_vocab(folder / "vocab.txt");
  const auto model =
      hasten::load_model(folder.string(), {.task = hasten::Task::token_classification}).model;
  const hasten::TemporaryDirectory out;
  hasten::Trainer trainer(model,
                          {.output_dir = out.path() / "run",
                           .per_device_train_batch_size = 8,
                           .num_train_epochs = 6,
                           .learning_rate = 3e-3,
                           .use_cpu = true,
                           .eval_strategy = hasten::IntervalStrategy::epoch,
                           .save_strategy = hasten::SaveStrategy::no},
                          {.train_dataset = tokenized(folder / "train.jsonl", tokenizer),
                           .eval_dataset = tokenized(folder / "eval.jsonl", tokenizer),
                           .compute_metrics = hasten::combine_metrics(
                               {std::make_shared<hasten::Accuracy>(),
                                std::make_shared<hasten::PrecisionRecallF1>(4)})});
  trainer.train();
  print_evaluations(trainer, {"loss", "accuracy", "f1"});
}
