// Compares runs of the tasks of `hasten train` with runs of the Hugging Face Trainer, from the
// files to the last weights (tests/oracle/generate_tasks.py).
#include "hasten/base/files.h"
#include "hasten/metrics/classification.h"
#include "hasten/models/bert.h"
#include "hasten/trainer/task_data.h"
#include "oracle/task_run.h"

namespace oracle_tasks_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

constexpr std::int64_t kLength = 24;  // as in generate_tasks.py

TrainOptions options_for(TrainTask task, const std::string& name, const std::string& ending) {
  const fs::path folder = kData / "tasks" / name;
  return {.model = folder.string(),
          .task = task,
          .data = (folder / ("train" + ending)).string(),
          .eval_data = (folder / ("eval" + ending)).string(),
          .max_length = kLength};
}

// The ids of every row, in order, without padding.
std::vector<std::vector<std::int64_t>> rows_in(const TrainerDataset& dataset, const char* column) {
  std::vector<std::vector<std::int64_t>> rows;
  for (const AnyBatch& batch : dataset.loader({.batch_size = 1})) {
    const at::Tensor row = batch.as<TensorDict>().at(column).flatten().to(at::kLong).contiguous();
    rows.emplace_back(row.const_data_ptr<std::int64_t>(),
                      row.const_data_ptr<std::int64_t>() + row.numel());
  }
  return rows;
}

// Compares the ids and the labels of the first rows, which a script recorded as pairs.
void check_first_rows(const TrainerDataset& dataset, const json& expected) {
  const auto ids = rows_in(dataset, "input_ids"), labels = rows_in(dataset, "labels");
  REQUIRE(ids.size() >= expected.size());
  for (std::size_t row = 0; row < expected.size(); ++row) {
    CAPTURE(row);
    CHECK(expected[row][0] == json(ids[row]));
    CHECK(expected[row][1] == json(labels[row]));
  }
}

// A model's folder with one of the tokenizers of tasks/tokenizers.json, and the texts of that file.
class OtherTokenizer {
 public:
  OtherTokenizer(const json& file, const json& tokenizer) {
    json whole = json::parse(
        read_file(kData / "tokenizers" / (tokenizer.at("base").get<std::string>() + ".json")));
    whole.update(tokenizer.at("change"));
    write("tokenizer.json", whole.dump());
    write("tokenizer_config.json", tokenizer.at("names").dump());
    json config = json::parse(read_file(kData / "tasks/token_classification/config.json"));
    config["vocab_size"] = tokenizer.at("size");
    BertModel model(BertConfig::from_json(config.dump(), "config.json"));
    model.initialize();
    model.save_pretrained(folder_.path());
    std::string texts;
    for (const json& text : file.at("texts")) texts += text.get<std::string>() + "\n";
    write("texts.txt", texts);
  }

  // The rows of a task; `change` may set further options.
  template <class Change>
  TrainerDataset rows(TrainTask task, const fs::path& data, Change change) const {
    TrainOptions options{.model = folder_.path().string(), .task = task, .data = data.string()};
    options.max_length = kLength;
    change(options);
    const auto files = read_task_data(options);
    return files->train(*load_model(options.model, files->model_options()).model);
  }
  fs::path texts() const { return folder_.path() / "texts.txt"; }

 private:
  void write(const char* name, const std::string& text) const {
    write_file_atomically(folder_.path() / name, text);
  }

  TemporaryDirectory folder_;
};

void check_tags(const OtherTokenizer& tokenizer, const json& expected) {
  const TrainerDataset train =
      tokenizer.rows(TrainTask::token_classification,
                     kData / "tasks/token_classification/train.jsonl", [](TrainOptions& options) {
                       options.text_column = "tokens";
                       options.label_column = "tags";
                     });
  check_first_rows(train, expected);
}

// With probability 1, every token except the special ones is masked.
void check_masks(const OtherTokenizer& tokenizer, const json& expected) {
  const TrainerDataset train =
      tokenizer.rows(TrainTask::masked_lm, tokenizer.texts(),
                     [](TrainOptions& options) { options.mlm_probability = 1; });
  const auto ids = rows_in(train, "input_ids"), labels = rows_in(train, "labels");
  REQUIRE(ids.size() == expected.at("grouped").size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    CAPTURE(row);
    std::vector<std::int64_t> original = ids[row], special(ids[row].size(), 0);
    for (std::size_t token = 0; token < original.size(); ++token) {
      special[token] = labels[row][token] == -100 ? 1 : 0;
      if (special[token] == 0) original[token] = labels[row][token];
    }
    CHECK(expected["grouped"][row] == json(original));
    CHECK(expected["special"][row] == json(special));
  }
}

// Tokens of one word are masked together, but tokens of neighbouring words not always.
void check_whole_words(const OtherTokenizer& tokenizer, const json& expected) {
  const TrainerDataset train =
      tokenizer.rows(TrainTask::masked_lm, tokenizer.texts(), [](TrainOptions& options) {
        options.mlm_probability = 0.5;
        options.whole_word_mask = true;
      });
  const auto words = expected.at("words").get<std::vector<std::vector<std::int64_t>>>();
  const auto special = expected.at("special").get<std::vector<std::vector<std::int64_t>>>();
  const auto labels = rows_in(train, "labels");
  REQUIRE(labels.size() == words.size());
  std::size_t together = 0, apart = 0;
  for (std::size_t row = 0; row < words.size(); ++row) {
    for (std::size_t token = 1; token < words[row].size(); ++token) {
      if (special[row][token] != 0 || special[row][token - 1] != 0) continue;
      const bool is_same = (labels[row][token] == -100) == (labels[row][token - 1] == -100);
      if (words[row][token] != words[row][token - 1]) {
        apart += is_same ? 0 : 1;
        continue;
      }
      CHECK(is_same);
      ++together;
    }
  }
  const bool has_pieces = expected.at("base") != "word_level";
  CHECK((together > 50) == has_pieces);
  CHECK(apart > (has_pieces ? 5 : 0));
}

}  // namespace

TEST_CASE("tasks: token classification equals the Hugging Face Trainer's") {
  TrainOptions options =
      options_for(TrainTask::token_classification, "token_classification", ".jsonl");
  options.text_column = "tokens";
  options.label_column = "tags";
  // The recorded scores are computed from tags; oracle/entities compares the scores of entities.
  const auto classes = static_cast<std::int64_t>(
      json::parse(read_file(fs::path(options.model) / "config.json")).at("id2label").size());
  const auto model = check_run(
      options,
      {.metrics = combine_metrics({std::make_shared<Accuracy>(),
                                   std::make_shared<PrecisionRecallF1>(classes, Average::macro)})});
  const json config = json::parse(model->config_json());
  CHECK(config.at("architectures") == json::array({"BertForTokenClassification"}));
  CHECK(config.at("id2label").at("1") == "B-PER");

  // The ids and labels equal those of run_ner.py, even if a word has no token or is cut off.
  const json expected = json::parse(read_file(kData / "tasks/token_classification/encoded.json"));
  const TrainerDataset train = read_task_data(options)->train(*model);
  check_first_rows(train, expected);
}

TEST_CASE("tasks: masked language modelling equals the Hugging Face Trainer's") {
  TrainOptions options = options_for(TrainTask::masked_lm, "masked_lm", ".safetensors");
  const auto model = check_run(options);
  CHECK(json::parse(model->config_json()).at("architectures") == json::array({"BertForMaskedLM"}));

  // Without line_by_line, texts are joined and cut as in run_mlm.py; the masks hide some ids.
  options.data = (kData / "tasks/masked_lm/corpus.txt").string();
  options.eval_data.clear();
  const json expected = json::parse(read_file(kData / "tasks/masked_lm/grouped.json"));
  const TrainerDataset train = read_task_data(options)->train(*model);
  const auto ids = rows_in(train, "input_ids"), labels = rows_in(train, "labels");
  REQUIRE(ids.size() == expected.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    std::vector<std::int64_t> original = ids[row];
    for (std::size_t token = 0; token < original.size(); ++token) {
      if (labels[row][token] != -100) original[token] = labels[row][token];
    }
    CHECK(expected[row] == json(original));
  }
}

TEST_CASE("tasks: tags of words and masks equal those of Transformers for any tokenizer") {
  const json file = json::parse(read_file(kData / "tasks/tokenizers.json"));
  for (const auto& [name, expected] : file.at("tokenizers").items()) {
    CAPTURE(name);
    const OtherTokenizer tokenizer(file, expected);
    check_tags(tokenizer, expected.at("tagged"));
    check_masks(tokenizer, expected);
    check_whole_words(tokenizer, expected);
  }
}

TEST_CASE("tasks: a regression equals the Hugging Face Trainer's") {
  const TrainOptions options = options_for(TrainTask::text_classification, "regression", ".jsonl");
  CHECK(check_run(options)->problem_type() == "regression");
}

TEST_CASE("tasks: causal language modelling equals the Hugging Face Trainer's") {
  TrainOptions options = options_for(TrainTask::causal_lm, "causal_lm", ".txt");
  check_run(options);
  options = options_for(TrainTask::causal_lm, "causal_lm_lines", ".txt");
  options.line_by_line = true;
  check_run(options);
}

}  // namespace oracle_tasks_test
