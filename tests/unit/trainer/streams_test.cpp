// The Trainer on streams: with an unknown size and max_steps, over several passes, resumed, in
// several processes, and as the data of an evaluation.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/data/streams.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_streams_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

// The rows of a dataset one after the other, as a stream that does not know their number.
struct RowsInOrder {
  explicit RowsInOrder(std::int64_t count)
      : rows(tiny_runs::rows(std::max<std::int64_t>(count, 1))), count(count) {}
  std::optional<TensorDict> next() {
    if (at == count) return std::nullopt;
    ++reads;
    return rows.get(at++);
  }
  void rewind(std::int64_t) {
    at = 0;
    ++rewinds;
  }

  ColumnDataset rows;
  std::int64_t count, at = 0, rewinds = 0, reads = 0;
};

// The same stream, but it can skip rows without reading them.
struct SeekingRows : RowsInOrder {
  using RowsInOrder::RowsInOrder;
  void skip(std::int64_t rows) {
    at += rows;
    skipped += rows;
  }
  std::int64_t skipped = 0;
};

struct CountingCallback : TrainerCallback {
  void on_epoch_end(const TrainerEvent&, TrainerControl&) override { ++epochs; }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override { ++evaluations; }
  void on_evaluate_begin(const TrainerEvent&, std::int64_t batches) override {
    announced = batches;
  }
  std::int64_t epochs = 0, evaluations = 0, announced = -1;
};

TrainingArguments seven_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 7;
  args.learning_rate = 1e-3;
  return args;
}

struct Result {
  std::vector<double> losses;
  std::string log;
  TrainerState state;
  TensorDict weights;
};

Result train(
    const TrainingArguments& args, const TrainerDataset& data,
    const std::shared_ptr<TrainerCallback>& callback = std::make_shared<CountingCallback>(),
    const TrainerDataset& eval = {}) {
  Result result;
  const auto model = new_model(0);
  Trainer trainer(model, args,
                  {.train_dataset = data,
                   .eval_dataset = eval,
                   .callbacks = {callback},
                   .log_sink = [&](std::string_view line) { result.log += line; }});
  trainer.train();
  result.losses = logged(trainer);
  result.state = trainer.state();
  result.weights = model->state_dict();
  return result;
}

TrainingArguments sequential(TrainingArguments args) {
  args.train_sampling_strategy = SamplingStrategy::sequential;
  return args;
}

std::string error_with(const TrainingArguments& args) {
  return error_of([&] { train(args, TrainerDataset(RowsInOrder(10))); });
}

}  // namespace

TEST_CASE("trainer streams: a stream of unknown size trains like a dataset of its rows") {
  const Folder folder;
  const auto counts = std::make_shared<CountingCallback>();
  TrainingArguments args = seven_steps(folder.path);
  args.eval_strategy = IntervalStrategy::epoch;
  const Result of_stream =
      train(args, TrainerDataset(RowsInOrder(10)), counts, TrainerDataset(rows(4)));
  const Result of_rows = train(sequential(seven_steps(folder.path)), TrainerDataset(rows(10)));
  CHECK(of_stream.losses == of_rows.losses);
  CHECK(of_stream.state.global_step == 7);
  // A pass has three steps. The fraction of an epoch is in steps of the run, as in the Hugging Face
  // Trainer.
  CHECK(counts->epochs == 3);
  CHECK(counts->evaluations == 3);
  CHECK(of_stream.state.epoch == doctest::Approx(2 + 1.0 / 7));
  CHECK(of_stream.state.num_train_epochs == std::numeric_limits<std::int64_t>::max());
  CHECK(of_stream.state.max_steps == 7);
}

TEST_CASE("trainer streams: the end of the stream ends a window") {
  const Folder folder;
  TrainingArguments args = seven_steps(folder.path);
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 3;
  CHECK(train(args, TrainerDataset(RowsInOrder(10))).losses ==
        train(sequential(args), TrainerDataset(rows(10))).losses);
}

TEST_CASE("trainer streams: what needs the number of rows, or another order, is refused by name") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.num_train_epochs = 2;
  CHECK(contains(error_with(args), "trainer.max-steps | max_steps: got none"));
  CHECK(contains(error_with(args), "num_train_epochs"));
  args.max_steps = 2;
  CHECK(error_with(args) == "none");
  for (const SamplingStrategy strategy :
       {SamplingStrategy::group_by_length, SamplingStrategy::batch_rebalance}) {
    args.train_sampling_strategy = strategy;
    CHECK(contains(error_with(args),
                   str("trainer.stream-order | train_sampling_strategy ", name_of(strategy))));
  }
  args.train_sampling_strategy = SamplingStrategy::random;
  args.elastic_ranks = 2;
  CHECK(contains(error_with(args), "a stream, with elastic_ranks"));
}

TEST_CASE("trainer streams: a stream without rows is an error, one that is used up ends the run") {
  const Folder folder;
  CHECK(contains(error_of([&] { train(seven_steps(folder.path), TrainerDataset(RowsInOrder(0))); }),
                 "data.empty | "));
  struct SinglePassStream : RowsInOrder {
    using RowsInOrder::RowsInOrder;
    void rewind(std::int64_t) {}
  };
  const auto counts = std::make_shared<CountingCallback>();
  const Result result =
      train(seven_steps(folder.path), TrainerDataset(SinglePassStream(10)), counts);
  CHECK(result.state.global_step == 3);
  CHECK(contains(result.log, "the stream has no row in epoch 1: training stops at step 3 of 7"));
}

TEST_CASE("trainer streams: a stream that knows its size needs no max_steps") {
  struct SizedRows : RowsInOrder {
    using RowsInOrder::RowsInOrder;
    std::int64_t size() const { return count; }
  };
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.num_train_epochs = 2;
  const Result result = train(args, TrainerDataset(SizedRows(10)));
  CHECK(result.losses == train(sequential(args), TrainerDataset(rows(10))).losses);
  CHECK(result.state.max_steps == 6);
  CHECK(result.state.epoch == 2);
}

namespace {

// Trains four of the seven steps, and then the rest of them in a run that resumes.
template <class Stream>
Result resumed(const fs::path& folder, const std::shared_ptr<Stream>& stream,
               std::int64_t workers = 0) {
  TrainingArguments args = seven_steps(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  args.dataloader_num_workers = workers;
  train(args, TrainerDataset(RowsInOrder(10)));
  args.resume_from_checkpoint = (folder / "checkpoint-5").string();
  return train(args, TrainerDataset(stream));
}

}  // namespace

TEST_CASE("trainer streams: a resumed run reads the rest of the pass") {
  const Folder whole;
  const Result expected = train(seven_steps(whole.path), TrainerDataset(RowsInOrder(10)));
  for (const std::int64_t workers : {0, 2}) {
    // Step 5 ends after 8 of the 10 rows of the second pass.
    const Folder folder, other;
    const auto reading = std::make_shared<RowsInOrder>(10);
    const Result read = resumed(folder.path, reading, workers);
    CHECK(read.losses == expected.losses);
    CHECK(at::equal(read.weights.begin()->second, expected.weights.begin()->second));
    const auto seeking = std::make_shared<SeekingRows>(10);
    CHECK(resumed(other.path, seeking, workers).losses == expected.losses);
    CHECK(seeking->skipped == 8);
    CHECK(seeking->reads + 8 == reading->reads);
  }
}

TEST_CASE("trainer streams: a checkpoint of rows is not resumed with a stream of unknown size") {
  const Folder folder;
  TrainingArguments args = sequential(seven_steps(folder.path));
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  train(args, TrainerDataset(rows(10)));
  args.resume_from_checkpoint = (folder.path / "checkpoint-5").string();
  const std::string error = error_with(args);
  CHECK(contains(error, "trainer.data-changed | "));
  CHECK(contains(error, "training data of an unknown number of rows, expected 10 rows"));
}

TEST_CASE("trainer streams: an evaluation and a prediction take every row of a stream") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 4;
  const auto counts = std::make_shared<CountingCallback>();
  Trainer trainer(new_model(0), args,
                  {.compute_metrics = std::make_shared<Accuracy>(), .callbacks = {counts}});
  const Metrics of_stream = trainer.evaluate(TrainerDataset(RowsInOrder(10)));
  CHECK(counts->announced == 0);
  const Metrics of_rows = trainer.evaluate(TrainerDataset(rows(10)));
  CHECK(counts->announced == 3);
  CHECK(of_stream.at("eval_loss") == of_rows.at("eval_loss"));
  CHECK(of_stream.at("eval_accuracy") == of_rows.at("eval_accuracy"));
  // Rows per second over steps per second: 10 rows in 3 batches.
  CHECK(of_stream.at("eval_samples_per_second") / of_stream.at("eval_steps_per_second") ==
        doctest::Approx(10.0 / 3).epsilon(0.01));
  CHECK(at::equal(trainer.predict(TrainerDataset(RowsInOrder(10))).predictions,
                  trainer.predict(TrainerDataset(rows(10))).predictions));
}

TEST_CASE("trainer streams: several processes share the rows of a stream") {
  const Folder folder;
  TrainingArguments args = seven_steps(folder.path);
  args.per_device_train_batch_size = 6;
  const Result alone = train(args, TrainerDataset(RowsInOrder(25)));
  args.per_device_train_batch_size = 2;
  notebook_launcher(
      [&] {
        Trainer trainer(new_model(0), args,
                        {.train_dataset = TrainerDataset(RowsInOrder(25)),
                         .compute_metrics = std::make_shared<Accuracy>()});
        trainer.train();
        const std::vector<double> losses = logged(trainer);
        require(losses.size() == alone.losses.size(), str(losses.size(), " losses"));
        for (std::size_t i = 0; i < losses.size(); ++i)
          require(std::abs(losses[i] - alone.losses[i]) < 1e-5,
                  str("step ", i, ": ", losses[i], " and ", alone.losses[i]));
        const Metrics scores = trainer.evaluate(TrainerDataset(RowsInOrder(11)));
        const PredictionOutput predicted = trainer.predict(TrainerDataset(RowsInOrder(11)));
        require(predicted.predictions.size(0) == 11,
                str(predicted.predictions.size(0), " predictions"));
        const double right = predicted.predictions.argmax(1)
                                 .eq(predicted.label_ids)
                                 .to(at::kDouble)
                                 .mean()
                                 .item<double>();
        require(std::abs(scores.at("eval_accuracy") - right) < 1e-9, "another accuracy");
      },
      {.num_processes = 3});
}

}  // namespace trainer_streams_test
