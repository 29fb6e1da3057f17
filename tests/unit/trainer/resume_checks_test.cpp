// A resumed run refuses some changes of arguments or data, and reports others.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/trainer/resumed_runs.h"
#include "unit/trainer/tiny.h"

namespace trainer_resume_checks_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;
using namespace hasten::resumed_runs;

TEST_CASE("resume: a different gradient_accumulation_steps is refused with both values") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  run(args);
  args.gradient_accumulation_steps = 2;
  try {
    run(resumed_at(args, 8));
    FAIL("expected an error");
  } catch (const ConfigError& error) {
    CHECK(error.code() == "trainer.accumulation-changed");
    CHECK(contains(error.what(), "got gradient_accumulation_steps 2, expected 1"));
  }
  CHECK(checkpoints(folder.path).size() == 5);
  args.per_device_train_batch_size = 3;
  CHECK(code_of([&] { run(resumed_at(args, 8)); }) == "trainer.batch-size-changed");
  args.ignore_data_skip = true;
  CHECK(code_of([&] { run(resumed_at(args, 8)); }) == "none");
}

TEST_CASE("resume: half the batch, accumulated twice, makes the same steps") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  const ResumedRun straight = run(args, rows(22), 0);
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  const ResumedRun resumed = run(resumed_at(args, 4), rows(22), 0);
  REQUIRE(resumed.losses.size() == straight.losses.size());
  for (std::size_t i = 0; i < straight.losses.size(); ++i)
    CHECK(resumed.losses[i] == doctest::Approx(straight.losses[i]).epsilon(1e-4));
  CHECK(contains(resumed.log, "gradient_accumulation_steps is 2 and was 1"));
  args.dataloader_drop_last = true;  // then another batch size drops other rows
  CHECK(code_of([&] { run(resumed_at(args, 4), rows(22), 0); }) == "trainer.batch-size-changed");
}

TEST_CASE("resume: every other argument that changed is reported once") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  const int threads = at::get_num_threads();
  args.num_threads = 2;
  run(args);
  const ResumedRun same = run(resumed_at(args, 8));
  CHECK_FALSE(contains(same.log, " and was "));
  args = resumed_at(args, 8);
  args.seed = 43;
  args.learning_rate = 2e-3;
  args.weight_decay = 0.1;
  args.warmup_steps = 3;
  args.lr_scheduler_type = SchedulerType::cosine;
  args.max_steps = 12;
  args.num_threads = 1;
  const ResumedRun changed = run(args);
  for (const char* line :
       {"seed is 43 and was 42", "learning_rate is 0.002 and was 0.001",
        "weight_decay is 0.1 and was 0", "warmup_steps is 3 and was 0",
        "lr_scheduler_type is cosine and was linear", "max_steps is 12 and was 10",
        "the number of threads of an operation is 1 and was 2"}) {
    CAPTURE(line);
    CHECK(contains(changed.log, line));
  }
  CHECK_FALSE(contains(changed.log, "num_threads"));
  // The environment may change the number, too.
  args.num_threads = 0;
  at::set_num_threads(3);
  CHECK(contains(run(args).log, "the number of threads of an operation is 3 and was 2"));
  at::set_num_threads(threads);
  fs::remove(fs::path(args.resume_from_checkpoint) / "training_args.json");
  write_manifest(args.resume_from_checkpoint);
  CHECK(contains(run(args).log, "no training_args.json"));
}

TEST_CASE("resume: a model with another configuration is reported") {
  const Folder folder;
  const TrainingArguments args = ten_steps(folder.path);
  run(args);
  CHECK_FALSE(contains(run(resumed_at(args, 8)).log, "the model's"));
  const std::string log = run(resumed_at(args, 8), rows(20), 0).log;
  CHECK_MESSAGE(contains(log, "the model's hidden_dropout_prob is 0"), log);
  CHECK_MESSAGE(contains(log, " and was 0.1 when the checkpoint was made"), log);

  // A text that is too long for a line is not shown.
  const fs::path config = folder.path / "checkpoint-8" / "config.json";
  std::string text = read_file(config);
  text.replace(text.find("\"bert\""), 6, '"' + std::string(200, 'x') + '"');
  write_file_atomically(config, text);
  write_manifest(config.parent_path());
  CHECK(contains(run(resumed_at(args, 8)).log,
                 "the model's model_type has another value than when the checkpoint was made"));
}

TEST_CASE("resume: other training data are refused or reported") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  run(args);
  args = resumed_at(args, 8);
  CHECK(code_of([&] { run(args, rows(24)); }) == "trainer.data-changed");
  CHECK_FALSE(contains(run(args).log, "training data"));
  CHECK(contains(run(args, reversed(rows(20))).log, "the training data or their order differ"));
  args.train_sampling_strategy = SamplingStrategy::sequential;
  CHECK(code_of([&] { run(args); }) == "trainer.data-changed");
  args.ignore_data_skip = true;
  CHECK(code_of([&] { run(args, rows(24)); }) == "none");
}

TEST_CASE("resume: rows that are grouped by length continue inside of an epoch") {
  TensorDict columns = rows(20).columns();
  columns["tokens"] = at::arange(20).mul(7).remainder(20) + 1;
  const ColumnDataset data(columns);
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.train_sampling_strategy = SamplingStrategy::group_by_length;
  args.length_column_name = "tokens";
  const ResumedRun straight = run(args, data);
  args = resumed_at(args, 8);
  for (const auto& [name, tensor] : run(args, data).weights)
    CHECK(at::equal(tensor, straight.weights.at(name)));
  args.length_column_name = "length";
  CHECK(code_of([&] { run(args, data); }) == "trainer.data-changed");
}

TEST_CASE("resume: computing the data's fingerprint draws nothing from the generators") {
  // Rows that differ each time they are read, so that no fingerprint is kept.
  struct Noise {
    std::int64_t size() const { return 20; }
    TensorDict get(std::int64_t row) const {
      return {{"input_ids", at::randint(5, 60, {12})},
              {"labels", at::scalar_tensor(row % 2, at::kLong)}};
    }
  };
  const auto weights_after = [](SaveStrategy saves) {
    const Folder folder;
    TrainingArguments args = ten_steps(folder.path);
    args.save_strategy = saves;
    const auto model = new_model();
    Trainer trainer(model, args, {.train_dataset = TrainerDataset(Noise{})});
    trainer.train();
    if (saves != SaveStrategy::no) {
      CHECK(contains(read_file(folder.path / "checkpoint-10" / "training_position.json"),
                     "\"sample\": \"\""));
    }
    return model->state_dict().at("classifier.weight").clone();
  };
  CHECK(at::equal(weights_after(SaveStrategy::steps), weights_after(SaveStrategy::no)));
}

}  // namespace trainer_resume_checks_test
