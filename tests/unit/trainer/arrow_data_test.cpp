// The tasks of `hasten train` on folders of the datasets library and on Parquet files. The
// datasets library wrote these files; tests/oracle/arrow_test.cpp compares the rows with the rows
// that it reads.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/data/arrow_dataset.h"
#include "hasten/models/bert.h"
#include "hasten/trainer/task_data.h"
#include "hasten/trainer/trainer.h"
#include "skip.h"
#include "unit/data/error_of.h"
#include "unit/trainer/class_names.h"
#include "unit/trainer/tiny.h"

namespace trainer_arrow_data_test {

using namespace hasten;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

namespace {

std::string arrow_path(const std::string& name) {
  return (fs::path(HASTEN_TEST_DATA) / "oracle/data/arrow" / name).string();
}

bool can_read_arrow() {
  try {
    (void)load_arrow_dataset(arrow_path("ids"));
    return true;
  } catch (const ConfigError& error) {
    skip_test("hasten was built without the pyarrow wheel (tools/fetch_pyarrow.sh)");
    return false;
  }
}

// A task with the folder of a model that has 10 tokens. The data contain the ids of these tokens.
class ArrowTask {
 public:
  explicit ArrowTask(TrainTask task) {
    write_file_atomically(folder_.path() / "vocab.txt",
                          "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\n##ish\n.\n");
    BertConfig config = tiny_runs::tiny(0);
    config.vocab_size = 10;
    BertModel model(config);
    model.initialize();
    model.save_pretrained(folder_.path());
    options.model = folder_.path().string();
    options.task = task;
    if (task == TrainTask::token_classification) {
      options.text_column = "tokens";
      options.label_column = "tags";
    }
  }

  LoadedModel load(EvalLabels labels = EvalLabels::required) const {
    return load_model(options.model, read_task_data(options, labels)->model_options());
  }
  TensorDict train() const { return batch_of(read_task_data(options)->train(*load().model)); }
  TensorDict eval(EvalLabels labels = EvalLabels::required) const {
    return batch_of(read_task_data(options, labels)->eval(*load(labels).model));
  }
  Names class_names() const { return class_names_of(*load().model); }

  TrainOptions options;

 private:
  static TensorDict batch_of(const TrainerDataset& dataset) {
    auto loader = dataset.loader({.batch_size = dataset.size()});
    return loader.begin()->as<TensorDict>();
  }
  TemporaryDirectory folder_;
};

bool has_values(const at::Tensor& tensor, std::vector<std::int64_t> expected) {
  return at::equal(tensor.flatten(), at::tensor(expected, at::kLong));
}

}  // namespace

TEST_CASE("arrow data: texts are tokenized, and classes keep their numbers") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = arrow_path("texts");
  const TensorDict batch = task.train();
  CHECK(has_values(batch.at("input_ids"), {2, 5, 6, 3, 2, 7, 3, 0, 2, 5, 3, 0}));
  CHECK(has_values(batch.at("labels"), {1, 0, 1}));
  CHECK(task.class_names() == Names{"zebra", "ant"});  // sorted names would begin with ant
  // A row with the class -1 has no label.
  task.options.data = arrow_path("unlabelled.parquet");
  CHECK(contains(error_of([&] { task.train(); }), "text.class | "));
  CHECK(contains(error_of([&] { task.train(); }), "unlabelled.parquet:3: column \"label\""));
}

TEST_CASE("arrow data: words have the tags of their lists") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::token_classification);
  task.options.data = arrow_path("words.parquet");
  const TensorDict batch = task.train();
  CHECK(has_values(batch.at("input_ids"), {2, 5, 6, 3, 2, 7, 3, 0}));
  CHECK(has_values(batch.at("labels"), {-100, 1, 0, -100, -100, 0, -100, -100}));
  CHECK(task.class_names() == Names{"O", "B"});
}

TEST_CASE("arrow data: rows of ids stay as they are, and are padded batch by batch") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = arrow_path("ids");
  TensorDict batch = task.train();
  CHECK(has_values(batch.at("input_ids"), {2, 5, 3, 0, 2, 6, 7, 3}));
  CHECK(has_values(batch.at("attention_mask"), {1, 1, 1, 0, 1, 1, 1, 1}));
  CHECK(has_values(batch.at("labels"), {0, 1}));
  CHECK(task.class_names() == Names{"no", "yes"});
  task.options.num_labels = 1;  // a regression uses the numbers
  CHECK((task.train().at("labels").scalar_type() == at::kFloat));

  ArrowTask masked(TrainTask::masked_lm);
  masked.options.data = arrow_path("ids");
  masked.options.mlm_probability = 1;
  batch = masked.train();
  // "label" is a class of the row. The labels of its tokens come from hasten's masking.
  CHECK(batch.at("labels").sizes() == batch.at("input_ids").sizes());
  CHECK(has_values(batch.at("labels").masked_select(batch.at("labels").ne(-100)), {5, 6, 7}));
}

TEST_CASE("arrow data: ids that the model does not have are refused with their row") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = arrow_path("splits/train");
  const std::string error = error_of([&] { task.train(); });
  CHECK(error == "none");  // its ids are below 10
  task.options.data = arrow_path("splits/test");
  CHECK(error_of([&] { task.train(); }) == "none");
  task.options.data = arrow_path("dictionary.arrow");
  CHECK(contains(error_of([&] { task.train(); }), "text.missing-column"));
}

TEST_CASE("arrow data: a mask of another length than its row is refused before training") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = arrow_path("masks.arrow");
  const std::string error = error_of([&] { task.train(); });
  CHECK(contains(error, "data.lengths | "));
  CHECK(contains(error, "masks.arrow: attention_mask of row 1"));
}

TEST_CASE("arrow data: a row without a label is named") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = arrow_path("missing.parquet");
  CHECK(task.train().at("labels").size(0) == 3);
  CHECK(task.class_names() == Names{"a", "b"});
  task.options.label_column = "score";
  CHECK(contains(error_of([&] { task.train(); }), "text."));
  CHECK(contains(error_of([&] { task.train(); }), "missing.parquet:2: column \"score\""));
}

TEST_CASE("arrow data: a folder of splits gives train and test") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = task.options.eval_data = arrow_path("splits");
  CHECK(task.train().at("labels").size(0) == 7);
  CHECK(task.eval().at("labels").size(0) == 3);
  CHECK(task.class_names() == Names{"zebra", "ant", "cat"});
}

TEST_CASE("arrow data: a run trains on a folder and evaluates a split of it") {
  if (!can_read_arrow()) return;
  ArrowTask task(TrainTask::text_classification);
  task.options.data = task.options.eval_data = arrow_path("splits");
  const auto data = read_task_data(task.options);
  const LoadedModel loaded = load_model(task.options.model, data->model_options());
  const tiny_runs::Folder folder;
  TrainingArguments args = tiny_runs::short_run(folder.path);
  args.num_train_epochs = 2;
  args.train_sampling_strategy = SamplingStrategy::group_by_length;
  Trainer trainer(loaded.model, args,
                  {.train_dataset = data->train(*loaded.model),
                   .eval_dataset = data->eval(*loaded.model),
                   .compute_metrics = data->metrics(*loaded.model)});
  CHECK(trainer.train().global_step == 4);
  CHECK(trainer.evaluate().contains("eval_accuracy"));
}

}  // namespace trainer_arrow_data_test
