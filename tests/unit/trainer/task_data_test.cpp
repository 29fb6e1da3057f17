// The files of token classification and masked language modelling become checked rows.
// classification_data_test.cpp tests labels of whole texts.
#include "hasten/trainer/task_data.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <set>

#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/trainer/class_names.h"
#include "unit/trainer/tiny.h"

namespace trainer_task_data_test {

using namespace hasten;

namespace {

// A model's folder with 10 tokens, and the data files of a task.
class TaskFiles {
 public:
  explicit TaskFiles(TrainTask task, std::vector<std::string> tags = {}) {
    write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\n##ish\n.\n");
    BertConfig config = tiny_runs::tiny(0);
    config.vocab_size = 10;
    if (!tags.empty()) config.num_labels = static_cast<std::int64_t>(tags.size());
    for (std::size_t id = 0; id < tags.size(); ++id)
      config.id2label[static_cast<std::int64_t>(id)] = tags[id];
    BertModel model(config);
    model.initialize();
    model.save_pretrained(scratch_.path());
    options.model = scratch_.path().string();
    options.task = task;
    if (task == TrainTask::token_classification) {
      options.text_column = "tokens";
      options.label_column = "tags";
    }
  }

  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomically(scratch_.path() / name, text);
    return path(name);
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  LoadedModel load() const {
    return load_model(options.model, read_task_data(options)->model_options());
  }
  // The batch of all training rows, or of all evaluation rows.
  TensorDict train(std::uint64_t seed = 42) const {
    return batch_of(read_task_data(options)->train(*load().model), seed);
  }
  TensorDict eval(EvalLabels labels = EvalLabels::required) const {
    const auto data = read_task_data(options, labels);
    return batch_of(data->eval(*load_model(options.model, data->model_options()).model));
  }
  std::string error() const {
    return error_of([&] { options.data.empty() ? eval() : train(); });
  }
  std::vector<std::string> tag_names() const { return class_names_of(*load().model); }

  TrainOptions options;

 private:
  static TensorDict batch_of(const TrainerDataset& dataset, std::uint64_t seed = 42) {
    auto loader = dataset.loader({.batch_size = dataset.size(), .seed = seed});
    TensorDict batch = loader.begin()->as<TensorDict>();
    for (auto& [name, tensor] : batch) tensor = tensor.clone();
    return batch;
  }

  TemporaryDirectory scratch_;
};

using Names = std::vector<std::string>;

bool has_values(const at::Tensor& tensor, std::vector<std::int64_t> expected) {
  return at::equal(tensor.flatten(), at::tensor(expected, at::kLong));
}

constexpr const char* kTwoRows =
    "{\"tokens\": [\"Redish\", \"green\", \"\u200b\", \".\"], \"tags\": [\"B\", \"I\", \"O\", "
    "\"O\"]}\n"
    "{\"tokens\": [\"blue\"], \"tags\": [\"O\"]}\n";

}  // namespace

TEST_CASE("token classification: a word's tag is the label of its first token") {
  TaskFiles files(TrainTask::token_classification);
  files.options.data = files.write("train.jsonl", kTwoRows);
  const TensorDict batch = files.train();
  CHECK(has_values(batch.at("input_ids"), {2, 5, 8, 6, 9, 3, 2, 7, 3, 0, 0, 0}));
  CHECK(
      has_values(batch.at("labels"), {-100, 0, -100, 1, 2, -100, -100, 2, -100, -100, -100, -100}));
  CHECK(has_values(batch.at("attention_mask"), {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
  CHECK(files.tag_names() == Names{"B", "I", "O"});
  const LoadedModel loaded = files.load();
  CHECK(loaded.report.missing == Names{"classifier.bias", "classifier.weight"});
  CHECK(nlohmann::json::parse(loaded.model->config_json()).at("architectures") ==
        nlohmann::json::array({"BertForTokenClassification"}));
  files.options.max_length = 4;
  CHECK(has_values(files.train().at("labels"), {-100, 0, -100, -100, -100, 2, -100, -100}));
}

TEST_CASE("token classification: the model's tags are kept, and numbers are ids") {
  TaskFiles files(TrainTask::token_classification, {"O", "B", "I"});
  files.options.data = files.write("train.jsonl", kTwoRows);
  CHECK(has_values(files.train().at("labels").select(0, 0), {-100, 1, -100, 2, 0, -100}));
  CHECK(files.tag_names() == Names{"O", "B", "I"});

  files.options.data =
      files.write("numbers.jsonl", "{\"tokens\": [\"red\", \"blue\"], \"tags\": [4, -100]}");
  files.options.num_labels = 5;
  CHECK(has_values(files.train().at("labels"), {-100, 4, -100, -100}));

  // A regression's single label says nothing about tags.
  TaskFiles regression(TrainTask::token_classification, {"LABEL_0"});
  regression.options.data = regression.write("train.jsonl", kTwoRows);
  CHECK(
      has_values(regression.train().at("labels").select(0, 1), {-100, 2, -100, -100, -100, -100}));
}

TEST_CASE("token classification: evaluation takes the tags of the training data or of the model") {
  TaskFiles files(TrainTask::token_classification);
  files.options.data = files.write("train.jsonl", kTwoRows);
  files.options.eval_data = files.write("eval.jsonl", "{\"tokens\": [\"red\"], \"tags\": [\"O\"]}");
  CHECK(has_values(files.eval().at("labels"), {-100, 2, -100}));
  files.write("eval.jsonl", "{\"tokens\": [\"red\"], \"tags\": [\"X\"]}");
  CHECK(contains(error_of([&] { files.eval(); }), "eval.jsonl:1: column \"tags\": got \"X\""));
  files.write("eval.jsonl", "{\"tokens\": [\"red\"]}");
  CHECK(contains(error_of([&] { files.eval(); }), "text.missing-column"));
  CHECK(files.eval(EvalLabels::optional).count("labels") == 0);

  TaskFiles trained(TrainTask::token_classification, {"O", "B"});
  trained.options.eval_data =
      trained.write("eval.jsonl", "{\"tokens\": [\"red\", \".\"], \"tags\": [\"B\", \"O\"]}");
  CHECK(has_values(trained.eval().at("labels"), {-100, 1, 0, -100}));
}

TEST_CASE("token classification: bad rows are refused before training") {
  TaskFiles files(TrainTask::token_classification);
  files.options.data = files.write(
      "train.jsonl", std::string(kTwoRows) + "{\"tokens\": [\"red\"], \"tags\": [\"\"]}");
  CHECK(contains(files.error(), "text.class | "));
  CHECK(contains(files.error(), "train.jsonl:3: column \"tags\""));
  files.write("train.jsonl", "{\"tokens\": [\"red\"], \"tags\": [\"O\"]}");
  CHECK(contains(files.error(), "train.labels | "));
  files.write("train.jsonl", "{\"tokens\": [\"red\", \".\"], \"tags\": [\"0.5\", \"1\"]}");
  CHECK(contains(files.error(), "got numbers with fractions"));
  files.write("train.jsonl", "{\"tokens\": [\"red\", \".\"], \"tags\": [-100, -100]}");
  CHECK(contains(files.error(), "-100 in every row"));
  files.options.num_labels = 1;
  files.write("train.jsonl", kTwoRows);
  CHECK(contains(files.error(), "train.labels | "));
}

TEST_CASE("token classification: rows of ids have a label for each token") {
  TaskFiles files(TrainTask::token_classification, {"O", "B"});
  files.options.data = files.path("rows.safetensors");
  const at::Tensor ids = at::full({2, 3}, 5, at::kLong);
  const auto labels = [&](const at::Tensor& tensor) {
    save_safetensors(files.options.data, {{"input_ids", ids}, {"labels", tensor}});
    return files.error();
  };
  CHECK(labels(at::tensor({0, 1, -100, 1, 1, 1}, at::kInt).view({2, 3})) == "none");
  CHECK((files.train().at("labels").scalar_type() == at::kLong));
  CHECK(contains(labels(at::ones({2}, at::kLong)), "got shape [2], expected [2, 3]"));
  CHECK(contains(labels(at::full({2, 3}, 2, at::kLong)), "expected 0 to 1"));
  CHECK(contains(labels(at::ones({2, 3})), "data.labels | "));
  files.options.data = "dummy";
  files.options.dummy_rows = 4;
  files.options.dummy_length = 8;
  const TensorDict dummy = files.train();
  CHECK(at::equal(dummy.at("labels"), dummy.at("input_ids").remainder(2)));
}

TEST_CASE("masked lm: texts are joined and cut, or each is a row") {
  TaskFiles files(TrainTask::masked_lm);
  files.options.data = files.write("a.txt", "red green\n\n  \nblue .\ngreenish\n");
  files.options.max_length = 5;
  const auto original = [&] {
    const TensorDict batch = files.train();
    return at::where(batch.at("labels").ne(-100), batch.at("labels"), batch.at("input_ids"));
  };
  CHECK(has_values(original(), {2, 5, 6, 3, 2, 7, 9, 3, 2, 6}));
  files.options.line_by_line = true;
  CHECK(has_values(original(), {2, 5, 6, 3, 2, 7, 9, 3, 2, 6, 8, 3}));
  files.options.max_length = 3;
  CHECK(has_values(original(), {2, 5, 3, 2, 7, 3, 2, 6, 3}));
  CHECK(nlohmann::json::parse(files.load().model->config_json()).at("architectures") ==
        nlohmann::json::array({"BertForMaskedLM"}));

  files.options.max_length = 16;
  files.options.mlm_probability = 1;
  CHECK(has_values(files.train().at("labels").select(0, 0), {-100, 5, 6, -100}));
  files.options.whole_word_mask = true;
  CHECK(has_values(files.train().at("input_ids").select(0, 0), {2, 4, 4, 3}));

  files.options.line_by_line = false;
  CHECK(contains(files.error(), "data.empty | "));
  CHECK(contains(files.error(), "got 12 tokens, expected at least max_length, 16"));
  files.options.data = files.write("a.tsv", "text\tlabel\n \tx\n");
  CHECK(contains(files.error(), "got blank texts"));
  files.options.text_column = "txt";
  CHECK(contains(files.error(), "text.missing-column"));
}

TEST_CASE("masked lm: rows of ids are masked unless they have labels") {
  TaskFiles files(TrainTask::masked_lm);
  files.options.data = files.path("rows.safetensors");
  const at::Tensor ids = at::full({2, 6}, 5, at::kLong);
  save_safetensors(files.options.data, {{"input_ids", ids}});
  files.options.mlm_probability = 1;
  CHECK(at::equal(files.train().at("labels"), ids));
  const at::Tensor labels = at::full({2, 6}, -100, at::kLong).fill_diagonal_(9);
  save_safetensors(files.options.data, {{"input_ids", ids}, {"labels", labels}});
  CHECK(at::equal(files.train().at("labels"), labels));
  CHECK(at::equal(files.train().at("input_ids"), ids));
  save_safetensors(files.options.data, {{"input_ids", ids}, {"labels", labels + 1}});
  CHECK(contains(files.error(), "data.labels | "));

  // Mask tokens and random tokens must be ids of the model, even if the tokenizer has more tokens.
  files.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nred\n1\n2\n3\n4\n5\n6\n[MASK]\n");
  save_safetensors(files.options.data, {{"input_ids", ids}});
  CHECK(contains(files.error(), "data.ids | the id of the mask token: got 11, expected 0 to 9"));

  // Dummy rows need no tokenizer and keep their ids.
  std::filesystem::remove(files.path("vocab.txt"));
  files.options.data = "dummy";
  files.options.dummy_rows = 4;
  files.options.dummy_length = 8;
  const TensorDict dummy = files.train();
  CHECK(at::equal(dummy.at("labels"), dummy.at("input_ids")));
  files.options.data = files.write("a.txt", "red");
  CHECK(contains(files.error(), "tokenizers.no-tokenizer"));
}

TEST_CASE("causal lm: texts end with the end token, and are joined and cut, or each is a row") {
  TaskFiles files(TrainTask::causal_lm);
  std::filesystem::remove(files.path("vocab.txt"));
  GPT2Config config;
  config.vocab_size = 6;
  config.n_embd = 8;
  config.n_layer = config.n_head = 1;
  config.n_positions = 16;
  GPT2LMHeadModel model(config);
  model.initialize();
  model.save_pretrained(files.options.model);
  files.options.data = files.write("a.txt", "red green\n\n  \nblue .\nblack\n");
  CHECK(contains(files.error(), "tokenizers.no-tokenizer"));
  files.write("tokenizer.json",
              R"({"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": )"
              R"({"type": "WordLevel", "unk_token": "?", "vocab": )"
              R"({"?": 0, "red": 1, "green": 2, "blue": 3, ".": 4, "</s>": 5}}})");

  // Without an end token, texts are joined as they are.
  files.options.max_length = 5;
  CHECK(has_values(files.train().at("input_ids"), {1, 2, 3, 4, 0}));
  files.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  files.options.max_length = 4;
  CHECK(has_values(files.train().at("input_ids"), {1, 2, 5, 3, 4, 5, 0, 5}));
  CHECK(has_values(files.train().at("labels"), {1, 2, 5, 3, 4, 5, 0, 5}));

  files.options.line_by_line = true;
  CHECK(has_values(files.train().at("labels"), {1, 2, 5, 3, 4, 5, 0, 5, -100}));
  CHECK(has_values(files.train().at("attention_mask"), {1, 1, 1, 1, 1, 1, 1, 1, 0}));
  files.options.max_length = 2;
  CHECK(has_values(files.train().at("input_ids"), {1, 2, 3, 4, 0, 5}));

  files.options.line_by_line = false;
  files.options.max_length = 16;
  CHECK(contains(files.error(), "got 8 tokens, expected at least max_length, 16"));
  files.write("tokenizer_config.json", R"({"eos_token": "red"})");
  files.write("tokenizer.json",
              R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 9, "red": 1}}})");
  files.options.line_by_line = true;
  CHECK(contains(files.error(), "data.ids | "));
}

TEST_CASE("masked lm: whole words are those of the tokenizer, and it must name a mask token") {
  TaskFiles files(TrainTask::masked_lm);
  files.options.data = files.write("a.txt", "redblue redblue!\nblue\n");
  files.options.max_length = 3;
  // A byte-level tokenizer without special tokens. Its tokens do not mark that they continue a
  // word.
  files.write("tokenizer.json",
              R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, )"
              R"("trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "merges": )"
              R"(["r e", "re d", "b l", "bl u", "blu e"], "vocab": {"r": 0, "e": 1, "d": 2, )"
              R"("b": 3, "l": 4, "u": 5, "\u0120": 6, "!": 7, "re": 8, "red": 9, "bl": 10, )"
              R"("blu": 11, "blue": 12, "<mask>": 13}}})");
  CHECK(contains(files.error(), "tokenizers.missing-token"));
  CHECK(contains(files.error(), "the tokenizer has no mask token"));
  files.write("tokenizer_config.json", R"({"mask_token": "<mask>"})");
  CHECK(contains(files.error(), "got 13, expected 0 to 9"));
  files.write("tokenizer_config.json", R"({"mask_token": "!"})");
  CHECK(contains(files.error(), "data.ids | "));  // the model does not have the token "blue"

  TaskFiles large(TrainTask::masked_lm);
  BertConfig config = tiny_runs::tiny(0);
  config.vocab_size = 14;
  BertModel model(config);
  model.initialize();
  model.save_pretrained(large.options.model);
  large.write("tokenizer.json", read_file(files.path("tokenizer.json")));
  large.write("tokenizer_config.json", R"({"mask_token": "<mask>"})");
  large.options.data = files.options.data;
  large.options.max_length = 7;
  large.options.mlm_probability = 0.5;
  large.options.whole_word_mask = true;
  // The words are "redblue", " redblue", "!" and "blue". The last word of a text and the first word
  // of the next text are separate.
  std::set<std::vector<std::int64_t>> seen;
  for (int seed = 0; seed < 64; ++seed) {
    const at::Tensor labels = large.train(static_cast<std::uint64_t>(seed)).at("labels").ne(-100);
    const auto masked = [&](int token) { return labels[0][token].item<bool>(); };
    CHECK(masked(0) == masked(1));
    CHECK(masked(2) == masked(3));
    CHECK(masked(3) == masked(4));
    seen.insert({masked(0), masked(2), masked(5), masked(6)});
  }
  CHECK(seen.size() > 10);  // of 16 combinations

  // Ready-made ids do not say where words begin.
  save_safetensors(large.path("ids.safetensors"), {{"input_ids", at::full({2, 4}, 9, at::kLong)}});
  large.options.data = large.path("ids.safetensors");
  CHECK(contains(large.error(), "data.words | "));
  save_safetensors(large.path("ids.safetensors"), {{"input_ids", at::full({2, 4}, 9, at::kLong)},
                                                   {"word_ids", at::zeros({2, 4}, at::kLong)}});
  large.options.mlm_probability = 1;
  CHECK(has_values(large.train().at("input_ids"), std::vector<std::int64_t>(8, 13)));
}

TEST_CASE("masked lm: texts of which the tokenizer keeps nothing are left out") {
  TaskFiles files(TrainTask::masked_lm);
  files.options.line_by_line = true;
  files.options.data = files.write("a.txt", "red\n\u200b\n");
  files.write(
      "tokenizer.json",
      R"({"normalizer": {"type": "Replace", "pattern": {"String": "\u200b"}, "content": ""},)"
      R"("model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "red": 1, )"
      R"("<mask>": 2}}})");
  files.write("tokenizer_config.json", R"({"mask_token": "<mask>"})");
  files.options.mlm_probability = 1;
  CHECK(has_values(files.train().at("labels"), {1}));
  files.write("a.txt", "\u200b\n");
  CHECK(contains(files.error(), "data.empty | "));
}

TEST_CASE("text classification: texts need a padding token unless BERT's tokenizer reads them") {
  TaskFiles files(TrainTask::text_classification, {"a", "b"});
  files.options.data = files.write("a.tsv", "text\tlabel\nred green\ta\nblue\tb\n");
  files.write(
      "tokenizer.json",
      R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", )"
      R"("unk_token": "?", "vocab": {"?": 0, "red": 1, "green": 2, "<pad>": 7, "<wide>": 10}}})");
  CHECK(contains(files.error(), "tokenizers.missing-token"));
  files.write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  CHECK(has_values(files.train().at("input_ids"), {1, 2, 0, 7}));
  files.write("tokenizer_config.json", R"({"pad_token": "<wide>"})");
  CHECK(contains(files.error(), "data.ids | the id of the padding token: got 10, expected 0 to 9"));
}

TEST_CASE("tasks: an evaluation has the scores of its task") {
  torch::manual_seed(3);
  const auto scores = [](TaskFiles& files, const std::string& name, const std::string& text) {
    files.options.data = files.options.eval_data = files.write(name, text);
    const auto data = read_task_data(files.options);
    const LoadedModel loaded = load_model(files.options.model, data->model_options());
    const tiny_runs::Folder folder;
    Trainer trainer(loaded.model, {.output_dir = folder.path.string(), .use_cpu = true},
                    {.eval_dataset = data->eval(*loaded.model),
                     .compute_metrics = data->metrics(*loaded.model)});
    return trainer.evaluate();
  };
  TaskFiles words(TrainTask::token_classification);
  const Metrics tags = scores(words, "a.jsonl", kTwoRows);
  for (const char* name : {"eval_accuracy", "eval_precision", "eval_recall", "eval_f1"})
    CHECK(tags.count(name) == 1);

  TaskFiles texts(TrainTask::masked_lm);
  texts.options.line_by_line = true;
  texts.options.mlm_probability = 1;
  const Metrics masks = scores(texts, "a.txt", "red green\nblue green\n");
  CHECK(masks.at("eval_perplexity") == doctest::Approx(std::exp(masks.at("eval_loss"))));
  CHECK(masks.count("eval_accuracy") == 1);

  TaskFiles numbers(TrainTask::text_classification, {"LABEL_0"});
  const Metrics errors = scores(numbers, "a.tsv", "text\tlabel\nred\t0.5\nblue\t2\n");
  CHECK(errors.at("eval_mse") == doctest::Approx(errors.at("eval_loss")));
  CHECK(errors.count("eval_accuracy") == 0);
}

TEST_CASE("tasks: an evaluation batch without labels that count does not make the loss NaN") {
  const auto model = tiny_runs::new_model<BertForTokenClassification>(0);
  const at::Tensor ids = at::full({3, 4}, 7, at::kLong);
  at::Tensor labels = at::full({3, 4}, -100, at::kLong);
  labels[0][1] = 1;
  const auto loss = [&](std::int64_t rows) {
    const tiny_runs::Folder folder;
    Trainer trainer(
        model,
        {.output_dir = folder.path.string(), .per_device_eval_batch_size = 1, .use_cpu = true},
        {.eval_dataset = TrainerDataset(ColumnDataset(
             {{"input_ids", ids.narrow(0, 0, rows)}, {"labels", labels.narrow(0, 0, rows)}}))});
    return trainer.evaluate().at("eval_loss");
  };
  CHECK(std::isfinite(loss(1)));
  CHECK(loss(3) == loss(1));
}

}  // namespace trainer_task_data_test
