// The labels of files become the ids of classes or the numbers of a regression.
#include "hasten/trainer/classification_data.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/bert.h"
#include "unit/data/error_of.h"
#include "unit/trainer/class_names.h"
#include "unit/trainer/tiny.h"

namespace trainer_classification_data_test {

using namespace hasten;

namespace {

// A model's folder and the data files of its labels.
class LabelledFiles {
 public:
  explicit LabelledFiles(std::vector<std::string> names = {}, std::int64_t num_labels = 2,
                         const std::string& problem_type = "") {
    write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\n");
    config_ = tiny_runs::tiny(0);
    config_.vocab_size = 8;
    config_.num_labels = names.empty() ? num_labels : static_cast<std::int64_t>(names.size());
    config_.problem_type = problem_type;
    for (std::size_t id = 0; id < names.size(); ++id)
      config_.id2label[static_cast<std::int64_t>(id)] = names[id];
    BertForSequenceClassification model(config_);
    model.initialize();
    model.save_pretrained(scratch_.path());
    options.model = scratch_.path().string();
    // These tests use only the labels.
    options.ignore_mismatched_sizes = true;
  }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(scratch_.path() / name, text);
  }
  // Writes a table with these labels, one text for each.
  std::string table(const std::string& name, const std::vector<std::string>& labels) const {
    std::string text = "text\tlabel\n";
    for (const std::string& label : labels) text += "red\t" + label + "\n";
    write(name, text);
    return path(name);
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  LabelledFiles& train_on(const std::vector<std::string>& labels) {
    options.data = table("train.tsv", labels);
    return *this;
  }
  LabelledFiles& evaluate_on(const std::vector<std::string>& labels) {
    options.eval_data = table("eval.tsv", labels);
    return *this;
  }

  LoadedModel load() const {
    return load_model(options.model, ClassificationFiles(options).model_options());
  }
  // The labels of the batch that holds all training data, or all evaluation data.
  at::Tensor train() const { return labels_in(ClassificationFiles(options).train(*load().model)); }
  at::Tensor eval() const { return labels_in(ClassificationFiles(options).eval(*load().model)); }
  std::string error(bool evaluation = false) const {
    return error_of([&] { evaluation ? eval() : train(); });
  }
  nlohmann::json config() const { return nlohmann::json::parse(load().model->config_json()); }
  std::vector<std::string> names() const { return class_names_of(*load().model); }

  TrainOptions options;

 private:
  static at::Tensor labels_in(const TrainerDataset& dataset) {
    auto loader = dataset.loader({.batch_size = dataset.size()});
    const TensorDict batch = loader.begin()->as<TensorDict>();
    const auto found = batch.find("labels");
    return found == batch.end() ? at::Tensor() : found->second.clone();
  }

  TemporaryDirectory scratch_;
  BertConfig config_;
};

using LabelNames = std::vector<std::string>;

bool are_classes(const at::Tensor& labels, std::vector<std::int64_t> expected) {
  return labels.scalar_type() == at::kLong && at::equal(labels, at::tensor(expected, at::kLong));
}
bool are_numbers(const at::Tensor& labels, std::vector<double> expected) {
  return labels.scalar_type() == at::kFloat &&
         at::equal(labels, at::tensor(expected, at::kDouble).to(at::kFloat));
}
bool error_contains(const std::string& error, const std::string& code, const std::string& part) {
  INFO(error);
  const bool right = error.rfind(code + " |", 0) == 0 && error.find(part) != std::string::npos;
  CHECK(right);
  return right;
}

LabelNames numbers_below(std::int64_t count) {
  LabelNames out;
  for (std::int64_t number = 0; number < count; ++number) out.push_back(std::to_string(number));
  return out;
}

}  // namespace

TEST_CASE("labels: a single label is a regression on the numbers of the file") {
  LabelledFiles files;
  files.options.num_labels = 1;
  files.train_on({"0.0", "0.25", "2.5", "5.0", "100.0", "-3", "1e-2"}).evaluate_on({"7", "-0.5"});
  CHECK(are_numbers(files.train(), {0, 0.25, 2.5, 5, 100, -3, 0.01}));
  CHECK(are_numbers(files.eval(), {7, -0.5}));
  CHECK(files.config().at("problem_type") == "regression");
  CHECK(files.load().model->num_labels() == 1);

  files.train_on({"1.5", "good"});
  error_contains(files.error(), "text.number", "train.tsv:3: column \"label\": got \"good\"");
  files.train_on({"1.5", "nan"});
  error_contains(files.error(), "text.number", "train.tsv:3:");
  files.train_on({"1.5"}).evaluate_on({"1", ""});
  error_contains(files.error(true), "text.number", "eval.tsv:3:");
}

TEST_CASE("labels: a regression model stays one, also without --num_labels") {
  LabelledFiles one(LabelNames{"LABEL_0"});
  CHECK(are_numbers(one.train_on({"3", "10", "2"}).train(), {3, 10, 2}));
  one.options.data.clear();
  CHECK(are_numbers(one.evaluate_on({"3", "10", "2"}).eval(), {3, 10, 2}));
  one.options.num_labels = 2;  // another task
  CHECK(are_classes(one.train_on({"no", "yes"}).train(), {0, 1}));

  LabelledFiles two({}, 2, "regression");
  error_contains(two.train_on({"3", "10"}).error(), "train.labels", "got one number per row");
  two.options.num_labels = 1;
  CHECK(are_numbers(two.train(), {3, 10}));
}

TEST_CASE("labels: numbers with fractions are a regression, as in transformers' examples") {
  LabelledFiles files;
  CHECK(are_numbers(files.train_on({"0.5", "3", "2.25"}).train(), {0.5, 3, 2.25}));
  CHECK(files.config().at("problem_type") == "regression");
  // These labels may be either.
  error_contains(files.train_on({"1.0", "2.0", "10.0"}).error(), "train.labels",
                 "--num_labels 1 treats them as a regression, --num_labels 3 as classes");
  files.options.num_labels = 3;
  CHECK(are_classes(files.train(), {0, 1, 2}));
  files.options.num_labels = 1;
  CHECK(are_numbers(files.train(), {1, 2, 10}));
}

TEST_CASE("labels: whole numbers from 0 are their own ids, with and without --num_labels") {
  LabelledFiles files;
  const LabelNames twelve = numbers_below(12);
  files.train_on({"10", "2", "11", "0", "1", "3", "4", "5", "6", "7", "8", "9"});
  const std::vector<std::int64_t> ids = {10, 2, 11, 0, 1, 3, 4, 5, 6, 7, 8, 9};
  CHECK(are_classes(files.train(), ids));
  CHECK(files.names() == twelve);
  files.options.num_labels = 12;
  CHECK(are_classes(files.train(), ids));
  CHECK(files.names() == twelve);
  CHECK(files.config().at("problem_type") == "single_label_classification");
  // Some numbers are missing.
  files.train_on({"2", "10", "7"}).evaluate_on({"11", "0"});
  CHECK(are_classes(files.train(), {2, 10, 7}));
  CHECK(are_classes(files.eval(), {11, 0}));
  CHECK(files.names() == twelve);
  error_contains(files.train_on({"2", "12"}).error(), "text.class",
                 "train.tsv:3: column \"label\": got \"12\"");
  error_contains(files.train_on({"-1", "2"}).error(), "text.class",
                 "train.tsv:2: column \"label\": got \"-1\"");
}

TEST_CASE("labels: other whole numbers are names that are sorted by value") {
  LabelledFiles files;
  CHECK(are_classes(files.train_on({"1", "-1", "0", "-2"}).train(), {3, 1, 2, 0}));
  CHECK(files.names() == LabelNames{"-2", "-1", "0", "1"});
  CHECK(are_classes(files.train_on({"100", "20", "3"}).train(), {2, 1, 0}));
  CHECK(files.names() == LabelNames{"3", "20", "100"});
  // LABEL_k is also sorted by its number.
  files.train_on({"LABEL_10", "LABEL_2", "LABEL_0", "LABEL_1", "LABEL_3", "LABEL_4", "LABEL_5",
                  "LABEL_6", "LABEL_7", "LABEL_8", "LABEL_9"});
  CHECK(are_classes(files.train(), {10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9}));
  error_contains(files.evaluate_on({"LABEL_0", "LABEL_11"}).error(true), "text.class",
                 "eval.tsv:3:");
}

TEST_CASE("labels: --num_labels keeps the data's names, or is refused for another number") {
  LabelledFiles files;
  files.options.num_labels = 3;
  CHECK(are_classes(files.train_on({"sky", "apple", "red", "sky"}).train(), {2, 0, 1, 2}));
  CHECK(files.names() == LabelNames{"apple", "red", "sky"});
  error_contains(files.train_on({"sky", "apple"}).error(), "train.labels",
                 "got 2 names (apple, sky), expected 3, as --num_labels says");
  error_contains(files.train_on({"a", "b", "c", "d"}).error(), "train.labels", "got 4 names");
}

TEST_CASE("labels: blanks around a name are ignored, capitals count, empty names are refused") {
  LabelledFiles files;
  CHECK(are_classes(files.train_on({"no ", "yes", " no", "No"}).train(), {1, 2, 1, 0}));
  CHECK(files.names() == LabelNames{"No", "no", "yes"});
  error_contains(files.train_on({"no", "", "yes"}).error(), "text.class",
                 "train.tsv:3: column \"label\": got \"\"");
  error_contains(files.train_on({"no", " ", "yes"}).error(), "text.class", "train.tsv:3:");
  CHECK(are_classes(files.train_on({"-100", "1", "0"}).train(), {-100, 1, 0}));
  error_contains(files.train_on({"only", "only"}).error(), "train.labels", "got 1 name (only)");
  error_contains(files.train_on({"1", "1"}).error(), "train.labels", "at least two classes");
}

TEST_CASE("labels: JSON lines may have booleans, whole numbers and fractions") {
  LabelledFiles files;
  const auto train = [&](const LabelNames& labels) {
    std::string text;
    for (const std::string& label : labels)
      text += "{\"text\": \"red\", \"label\": " + label + "}\n";
    files.write("train.jsonl", text);
    files.options.data = files.path("train.jsonl");
    return files.train();
  };
  CHECK(are_classes(train({"true", "false"}), {1, 0}));
  CHECK(files.names() == LabelNames{"false", "true"});
  CHECK(are_classes(train({"2", "0", "\"1\""}), {2, 0, 1}));
  CHECK(are_numbers(train({"2.5", "0", "1"}), {2.5, 0, 1}));
  CHECK_THROWS_WITH_AS(train({"1", "null"}), doctest::Contains("train.jsonl:2: column \"label\""),
                       DataError);
}

TEST_CASE("labels: numbers with a cell that is no number are not classes") {
  LabelledFiles files;
  error_contains(files.train_on({"0.25", "1.5", "N/A", "0.75"}).error(), "train.labels",
                 "got 3 numbers with a decimal point, and 'N/A', expected numbers in every row");
  CHECK(are_classes(files.train_on({"v1.0", "v1.5", "0.5"}).train(), {1, 2, 0}));
}

TEST_CASE("labels: a trained model keeps its own names, also for data that lacks some") {
  LabelledFiles files({"warm", "cold", "mild"});
  CHECK(are_classes(files.train_on({"cold", "warm"}).train(), {1, 0}));
  CHECK(files.names() == LabelNames{"warm", "cold", "mild"});
  CHECK(files.load().report.mismatched.empty());
  files.options.data.clear();
  CHECK(are_classes(files.evaluate_on({"mild", "cold"}).eval(), {2, 1}));
  error_contains(files.evaluate_on({"mild", "hot"}).error(true), "text.class",
                 "eval.tsv:3: column \"label\": got \"hot\", expected one of the 3 known names");
  CHECK(are_classes(files.evaluate_on({"2", "0"}).eval(), {2, 0}));
  error_contains(files.evaluate_on({"2", "3"}).error(true), "text.class", "eval.tsv:3:");
  LabelledFiles numbers({"3", "1", "2"});
  CHECK(are_classes(numbers.evaluate_on({"3", "2"}).eval(), {0, 2}));
  error_contains(numbers.evaluate_on({"3", "0"}).error(true), "text.class", "eval.tsv:3:");
  // Different names need a new head.
  CHECK(are_classes(files.train_on({"yes", "no", "yes"}).train(), {1, 0, 1}));
  CHECK(files.load().report.mismatched.size() == 2);
}

TEST_CASE("labels: LABEL_k is the number k, and names are inferred only if all of them occur") {
  for (const LabelNames& names : {LabelNames{}, LabelNames{"LABEL_0", "LABEL_1", "LABEL_2"}}) {
    LabelledFiles files(names, 3);
    CHECK(are_classes(files.evaluate_on({"1", "2", "1"}).eval(), {1, 2, 1}));
    CHECK(are_classes(files.evaluate_on({"LABEL_2", "1"}).eval(), {2, 1}));
    CHECK(are_classes(files.evaluate_on({"new", "good", "bad"}).eval(), {2, 1, 0}));
    error_contains(files.evaluate_on({"good", "bad"}).error(true), "train.labels",
                   "got 2 names (bad, good), expected the 3 labels of the model");
    error_contains(files.evaluate_on({"1", "3"}).error(true), "text.class", "eval.tsv:3:");
    error_contains(files.evaluate_on({"1", "0.5"}).error(true), "text.class", "eval.tsv:3:");
    CHECK(files.names() == LabelNames{"LABEL_0", "LABEL_1", "LABEL_2"});
  }
  LabelledFiles numbers({"0", "1", "2"});
  CHECK(are_classes(numbers.evaluate_on({"LABEL_2", "1"}).eval(), {2, 1}));
}

TEST_CASE("labels: a name that two labels of a model share stands for neither") {
  LabelledFiles files({"a", "a", "b"});
  CHECK(are_classes(files.evaluate_on({"b", "b"}).eval(), {2, 2}));
  error_contains(files.evaluate_on({"b", "a"}).error(true), "text.class", "eval.tsv:3:");
}

TEST_CASE("labels: evaluation data has no label and no second text that training data lacks") {
  LabelledFiles files;
  files.train_on({"x", "y"}).evaluate_on({"y", "x", "z"});
  error_contains(files.error(true), "text.class", "eval.tsv:4: column \"label\": got \"z\"");
  files.write("pairs.tsv", "text\ttext_pair\tlabel\nred\tblue\tx\n");
  files.options.eval_data = files.path("pairs.tsv");
  error_contains(files.error(true), "text.missing-column",
                 "train.tsv: there is no column \"text_pair\"");
  std::swap(files.options.data, files.options.eval_data);
  error_contains(files.error(true), "text.missing-column",
                 "train.tsv: there is no column \"text_pair\"");
}

TEST_CASE("labels: a prediction needs no labels") {
  LabelledFiles files;
  files.write("eval.tsv", "text\nred\nblue\n");
  files.options.eval_data = files.path("eval.tsv");
  error_contains(files.error(true), "text.missing-column",
                 "eval.tsv: there is no column \"label\"");
  const auto predicted = [&] {
    const ClassificationFiles for_prediction(files.options, EvalLabels::optional);
    const LoadedModel loaded = load_model(files.options.model, for_prediction.model_options());
    auto loader = for_prediction.eval(*loaded.model).loader({.batch_size = 2});
    return loader.begin()->as<TensorDict>();
  };
  CHECK(predicted().count("labels") == 0);
  files.evaluate_on({"", ""});
  CHECK(predicted().count("labels") == 0);
  files.evaluate_on({"1", "0"});
  CHECK(are_classes(predicted().at("labels"), {1, 0}));
  files.evaluate_on({"1", ""});
  CHECK_THROWS_WITH_AS(predicted(), doctest::Contains("eval.tsv:3:"), DataError);
  files.options.eval_data = files.path("eval.safetensors");
  save_safetensors(files.options.eval_data, {{"input_ids", at::ones({2, 4}, at::kLong)}});
  CHECK(predicted().count("labels") == 0);
  error_contains(files.error(true), "data.labels", "there is no column \"labels\"");
}

TEST_CASE("labels: the model's problem_type decides which labels rows of ids have") {
  const auto labels_of = [](LabelledFiles& files, const at::Tensor& labels) {
    files.options.data = files.path("rows.safetensors");
    save_safetensors(files.options.data,
                     {{"input_ids", at::ones({2, 4}, at::kLong)}, {"labels", labels}});
    return files.error() == "none" ? files.train() : at::Tensor();
  };
  LabelledFiles classes({}, 3), one(LabelNames{"LABEL_0"}), pair({}, 2, "regression"),
      several({}, 3, "multi_label_classification"), single({}, 3, "single_label_classification");
  const at::Tensor ids = at::tensor({2, 0}, at::kLong), fractions = at::tensor({0.5, 2.0}),
                   shares = at::tensor({0.0, 1.0, 0.5, 1.0, 0.0, 0.0}).view({2, 3});
  CHECK(are_classes(labels_of(classes, ids), {2, 0}));
  CHECK(are_classes(labels_of(classes, ids.to(at::kInt).view({2, 1})), {2, 0}));
  CHECK(are_classes(labels_of(single, ids), {2, 0}));
  CHECK(are_numbers(labels_of(one, ids), {2, 0}));
  CHECK(are_numbers(labels_of(one, fractions), {0.5, 2}));
  CHECK((labels_of(several, shares).scalar_type() == at::kFloat));
  CHECK((labels_of(several, shares.gt(0).to(at::kLong)).scalar_type() == at::kFloat));
  CHECK((labels_of(pair, at::ones({2, 2}, at::kLong)).scalar_type() == at::kFloat));

  for (const auto& [files, labels] :
       {std::pair{&classes, fractions}, std::pair{&single, shares}, std::pair{&several, ids},
        std::pair{&pair, ids}, std::pair{&classes, at::full({2}, -1, at::kLong)},
        std::pair{&classes, at::ones({2, 3}, at::kLong)}, std::pair{&several, shares * 2},
        std::pair{&one, fractions * std::numeric_limits<double>::infinity()}}) {
    CHECK_FALSE(labels_of(*files, labels).defined());
    error_contains(files->error(), "data.labels", "rows.safetensors: ");
  }
  error_contains(several.train_on({"a", "b"}).error(), "train.labels",
                 "multi_label_classification");
}

TEST_CASE("labels: dummy rows use the ids of the model's vocabulary") {
  LabelledFiles files;  // 8 ids
  files.options.data = "dummy";
  files.options.dummy_rows = 4;
  files.options.dummy_length = 8;
  CHECK(files.error() == "none");
  CHECK(files.train().size(0) == 4);
  files.options.num_labels = 1;
  CHECK((files.train().scalar_type() == at::kFloat));
}

}  // namespace trainer_classification_data_test
