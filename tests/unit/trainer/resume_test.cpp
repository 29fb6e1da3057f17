// Resumed runs: what they keep, what they refuse and what they report.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"
#include "unit/variable.h"

namespace trainer_resume_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

using FolderNames = std::vector<std::string>;

// Ten steps over 20 rows in batches of four, with a checkpoint every second step.
TrainingArguments ten_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 10;
  args.learning_rate = 1e-3;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  return args;
}

struct ResumedRun {
  TrainOutput out;
  std::string log;
  std::vector<double> losses;
  TensorDict weights;
  std::string best;
};

ResumedRun run(const TrainingArguments& args, const ColumnDataset& data = rows(20),
               double dropout = 0.1, const TrainerDataset& eval = {}) {
  ResumedRun run;
  const auto model = new_model(dropout);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(data),
                   .eval_dataset = eval,
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  run.out = trainer.train();
  run.losses = logged(trainer);
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  run.best = trainer.state().best_model_checkpoint;
  return run;
}

TrainingArguments resumed_at(TrainingArguments args, std::int64_t step) {
  args.resume_from_checkpoint = (fs::path(args.output_dir) / str("checkpoint-", step)).string();
  return args;
}

FolderNames names_of_folders(const std::vector<fs::path>& folders) {
  FolderNames names;
  for (const fs::path& each : folders) names.push_back(each.filename().string());
  return names;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The same rows in reverse order.
ColumnDataset reversed(const ColumnDataset& data) {
  TensorDict columns;
  for (const auto& [name, column] : data.columns()) columns[name] = column.flip(0);
  return ColumnDataset(columns);
}

}  // namespace

TEST_CASE("resume: going back to an earlier checkpoint keeps the newly saved ones") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  run(args);
  REQUIRE(last_checkpoint(folder.path).filename() == "checkpoint-10");
  args.save_total_limit = 2;
  args.max_steps = 9;
  const ResumedRun resumed = run(resumed_at(args, 4));
  CHECK(contains(resumed.log, "checkpoint-6, checkpoint-8, checkpoint-10"));
  CHECK(names_of_folders(checkpoints(folder.path)) == FolderNames{"checkpoint-8", "checkpoint-9"});
  CHECK(abandoned_checkpoints(folder.path).empty());
  args.resume_from_checkpoint = "true";
  args.max_steps = 11;
  CHECK(contains(run(args).log, "checkpoint-9 at step 9"));
}

TEST_CASE("resume: without a limit, abandoned checkpoints stay under another name") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  run(args);
  args.max_steps = 6;
  args.seed = 43;
  run(resumed_at(args, 4));
  CHECK(names_of_folders(checkpoints(folder.path)) ==
        FolderNames{"checkpoint-2", "checkpoint-4", "checkpoint-6"});
  CHECK(names_of_folders(abandoned_checkpoints(folder.path)) ==
        FolderNames{"abandoned-checkpoint-6", "abandoned-checkpoint-8", "abandoned-checkpoint-10"});
  // A run that saves nothing leaves them in place.
  args.save_strategy = SaveStrategy::no;
  run(resumed_at(args, 2));
  CHECK(checkpoints(folder.path).size() == 3);
}

TEST_CASE("resume: a limit of one keeps the best checkpoint beside the newest") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.save_total_limit = 1;
  args.load_best_model_at_end = true;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.learning_rate = 0;  // no score is better than the first one, that of step 2
  args.max_steps = 4;
  const TrainerDataset eval(rows(20));
  const ResumedRun first = run(args, rows(20), 0, eval);
  CHECK(fs::path(first.best).filename() == "checkpoint-2");
  args.resume_from_checkpoint = "true";
  args.max_steps = 10;
  const ResumedRun second = run(args, rows(20), 0, eval);
  CHECK(fs::path(second.best).filename() == "checkpoint-2");
  CHECK(names_of_folders(checkpoints(folder.path)) == FolderNames{"checkpoint-2", "checkpoint-10"});

  // If the whole folder is moved, the best one is found beside the one resumed from.
  const Folder elsewhere;
  fs::rename(folder.path, elsewhere.path);
  args.output_dir = elsewhere.path.string();
  args.max_steps = 12;
  CHECK(run(args, rows(20), 0, eval).best == (elsewhere.path / "checkpoint-2").string());
}

TEST_CASE(
    "resume: the checkpoints of every sixth step stay, and the run continues from the newest") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.save_total_limit = 1;
  args.save_keep_every = 6;
  args.save_steps = 1;
  args.max_steps = 7;
  run(args);
  CHECK(names_of_folders(checkpoints(folder.path)) == FolderNames{"checkpoint-6", "checkpoint-7"});
  args.resume_from_checkpoint = "true";
  args.max_steps = 14;
  CHECK(contains(run(args).log, "checkpoint-7 at step 7"));
  CHECK(names_of_folders(checkpoints(folder.path)) ==
        FolderNames{"checkpoint-6", "checkpoint-12", "checkpoint-14"});
}

TEST_CASE("resume: a job that is restarted continues, and never the run of another job") {
  struct Killed : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      const std::string restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
      if (event.state.global_step == 5 && restarts == "0") ::kill(::getpid(), SIGKILL);
    }
  };
  const auto job = [](const Folder& folder, bool dies) {
    return [&folder, dies] {
      const fs::path log = folder.directory.path() / "log";
      TrainerParts parts{.train_dataset = TrainerDataset(rows(40)),
                         .log_sink = [log](std::string_view line) {
                           std::ofstream(log, std::ios::app) << line << '\n';
                         }};
      if (dies) parts.callbacks = {std::make_shared<Killed>()};
      TrainingArguments args = ten_steps(folder.path);
      args.log_level = LogLevel::info;
      args.async_save = false;
      Trainer trainer(new_model(), args, parts);
      trainer.train();
      trainer.save_model(folder.directory.path() / "model");
    };
  };
  const NotebookLauncherOptions options{.num_processes = 2, .use_cpu = true, .max_restarts = 1};
  const auto read = [](const Folder& folder, const char* name) {
    return read_file(folder.directory.path() / name);
  };
  const Folder straight, folder;
  notebook_launcher(job(straight, false), options);
  notebook_launcher(job(folder, true), options);
  CHECK(contains(read(folder, "log"), "checkpoint-4 at step 4"));
  CHECK(read(folder, "model/model.safetensors") == read(straight, "model/model.safetensors"));
  // Another job fails twice because the folder is in use. Its second attempt does not resume.
  write_file_atomically(folder.directory.path() / "log", "");
  CHECK_THROWS(notebook_launcher(job(folder, false), options));
  CHECK(read(folder, "log").empty());
}

TEST_CASE("resume: a new job with the name of an earlier one does not continue its run") {
  const Folder folder;
  const auto attempt = [&](const char* restarts) {
    const AttemptOfJob job("nightly", restarts);
    return code_of([&] { run(ten_steps(folder.path)); });
  };
  CHECK(attempt("0") == "none");
  CHECK(attempt("1") == "none");  // it continues its own run
  CHECK(attempt("0") == "trainer.output-in-use");
  CHECK(attempt("1") == "trainer.output-in-use");
}

TEST_CASE("resume: a restarted job that saves only its weights starts over, if it may") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.save_only_model = true;
  std::size_t steps = 0;
  const auto attempt = [&](const char* restarts) {
    const AttemptOfJob job("nightly", restarts);
    return code_of([&] { steps = run(args).losses.size(); });
  };
  CHECK(attempt("0") == "none");
  CHECK(attempt("1") == "trainer.no-training-state");
  args.overwrite_output_dir = true;
  steps = 0;
  CHECK(attempt("1") == "none");
  CHECK(steps == 10);
}

TEST_CASE("resume: a restarted job starts again beside damaged checkpoints of an earlier run") {
  struct Failing : TrainerCallback {
    void on_step_end(const TrainerEvent&, TrainerControl&, double) override {
      throw std::domain_error("the first attempt fails");
    }
  };
  const Folder folder;
  fs::create_directories(folder.path / "checkpoint-4.damaged");
  const auto attempt = [&](const char* restarts) {
    const AttemptOfJob job("nightly", restarts);
    TrainerParts parts{.train_dataset = TrainerDataset(rows(20)),
                       .log_sink = [](std::string_view) {}};
    if (*restarts == '0') parts.callbacks = {std::make_shared<Failing>()};
    Trainer(new_model(), ten_steps(folder.path), parts).train();
  };
  CHECK_THROWS_AS(attempt("0"), std::domain_error);
  CHECK_NOTHROW(attempt("1"));
  // The run's own damaged checkpoints are an error, and never a new start.
  for (const fs::path& each : checkpoints(folder.path))
    fs::rename(each, each.string() + ".damaged.2");
  CHECK(code_of([&] { attempt("2"); }) == "trainer.no-checkpoint");
}

TEST_CASE("resume: a restarted job continues what it saved, not the checkpoint that it was given") {
  struct Killed : TrainerCallback {
    Killed(std::int64_t step, bool damages) : step(step), damages(damages) {}
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      const std::string restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
      if (event.state.global_step != step || restarts != "0") return;
      const fs::path newest = fs::path(event.args.output_dir) / "checkpoint-4";
      if (damages) write_file_atomically(newest / "config.json", "");
      ::kill(::getpid(), SIGKILL);
    }
    std::int64_t step;
    bool damages;
  };
  const auto job = [](const Folder& folder, std::int64_t dies, const std::string& from,
                      bool damages = false) {
    return [&folder, dies, from, damages] {
      const fs::path log = folder.directory.path() / "log";
      TrainingArguments args = ten_steps(folder.path);
      args.resume_from_checkpoint = from;
      args.log_level = LogLevel::info;
      args.async_save = false;
      Trainer trainer(new_model(), args,
                      {.train_dataset = TrainerDataset(rows(40)),
                       .callbacks = {std::make_shared<Killed>(dies, damages)},
                       .log_sink = [log](std::string_view line) {
                         std::ofstream(log, std::ios::app) << line << '\n';
                       }});
      trainer.train();
      trainer.save_model(folder.directory.path() / "model");
    };
  };
  const NotebookLauncherOptions options{.num_processes = 2, .use_cpu = true, .max_restarts = 1};
  const Folder folder;
  const fs::path log = folder.directory.path() / "log",
                 weights = folder.directory.path() / "model" / "model.safetensors",
                 given = folder.path / "checkpoint-2";
  notebook_launcher(job(folder, -1, ""), options);
  const std::string expected = read_file(weights);
  // Before its first save, the later checkpoints are those of the first job.
  for (const std::int64_t dies : {3, 5}) {
    fs::remove(log);
    notebook_launcher(job(folder, dies, given.string()), options);
    const std::string text = read_file(log), first = "checkpoint-2 at step 2";
    CHECK(contains(text, first));
    CHECK(contains(text.substr(text.find(first) + 1), first) == (dies == 3));
    CHECK(contains(text, "checkpoint-4 at step 4") == (dies == 5));
    CHECK(read_file(weights) == expected);
  }
  // If what it has saved is damaged, it begins where it was told.
  fs::remove(log);
  notebook_launcher(job(folder, 5, given.string(), /*damages=*/true), options);
  CHECK(contains(read_file(log), "checkpoint-4.damaged"));
  CHECK_FALSE(contains(read_file(log), "checkpoint-4 at step 4"));
  CHECK(read_file(weights) == expected);
}

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
  args.dataloader_drop_last = true;  // then steps are lost at other places
  CHECK(code_of([&] { run(resumed_at(args, 4), rows(22), 0); }) == "trainer.batch-size-changed");
}

TEST_CASE("resume: every other argument that changed is reported once") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
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
  args.num_threads = 1;  // does not affect the numbers
  const ResumedRun changed = run(args);
  for (const char* line :
       {"seed is 43 and was 42", "learning_rate is 0.002 and was 0.001",
        "weight_decay is 0.1 and was 0", "warmup_steps is 3 and was 0",
        "lr_scheduler_type is cosine and was linear", "max_steps is 12 and was 10"}) {
    CAPTURE(line);
    CHECK(contains(changed.log, line));
  }
  CHECK_FALSE(contains(changed.log, "num_threads"));
  fs::remove(fs::path(args.resume_from_checkpoint) / "training_args.json");
  write_manifest(args.resume_from_checkpoint);
  CHECK(contains(run(args).log, "no training_args.json"));
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

TEST_CASE("resume: the mean loss covers the whole run, and logs continue where they stopped") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.logging_steps = 3;  // the checkpoints of steps 2, 4, 8 and 10 are between two logs
  const ResumedRun straight = run(args);
  REQUIRE(straight.losses.size() == 3);
  for (const std::int64_t step : {2, 4, 8}) {
    CAPTURE(step);
    args.save_strategy = SaveStrategy::no;
    const ResumedRun resumed = run(resumed_at(args, step));
    CHECK(resumed.out.training_loss == straight.out.training_loss);
    CHECK(resumed.out.metrics.at("train_loss") == straight.out.metrics.at("train_loss"));
    CHECK(resumed.losses == straight.losses);
    CHECK(resumed.out.steps == 10 - step);
  }
}

namespace {

// Runs the Trainer with callbacks. The model is BERT with dropout.
ResumedRun run_with(const TrainingArguments& args,
                    const std::vector<std::shared_ptr<TrainerCallback>>& callbacks) {
  ResumedRun run;
  const auto model = new_model(0.1);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .callbacks = callbacks,
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  run.out = trainer.train();
  for (const LogEntry& entry : trainer.state().log_history) {
    if (entry.count("loss")) run.losses.push_back(entry.at("loss"));
  }
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  return run;
}

// Counts the micro-batches that end inside of a window, and asks for something at one of them.
struct InWindow : TrainerCallback {
  InWindow(int at, bool stops) : at(at), stops(stops) {}
  void on_substep_end(const TrainerEvent&, TrainerControl& control) override {
    if (++seen != at) return;
    if (stops) {
      control.should_training_stop = true;
      control.stop_signal = SIGTERM;
    } else {
      control.should_save = true;
    }
  }
  void on_step_begin(const TrainerEvent&, TrainerControl&) override { ++begun; }
  int at, seen = 0, begun = 0;
  bool stops;
};

// Five micro-batches an epoch: a window of three, and one of two.
TrainingArguments windows_of_three(const fs::path& folder) {
  TrainingArguments args = ten_steps(folder);
  args.gradient_accumulation_steps = 3;
  args.max_steps = 7;
  args.save_strategy = SaveStrategy::no;
  args.dataloader_num_workers = 2;
  args.max_grad_norm = 0.1;
  return args;
}

void check_same(const ResumedRun& a, const ResumedRun& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.out.training_loss == b.out.training_loss);
  for (const auto& [name, tensor] : a.weights) {
    CAPTURE(name);
    CHECK(at::equal(tensor, b.weights.at(name)));
  }
}

}  // namespace

TEST_CASE("resume: a signal inside an accumulation window stops there, and loses nothing") {
  const Folder none;
  const ResumedRun straight = run_with(windows_of_three(none.path), {});
  for (const int micro_batch : {1, 2, 3, 5, 7}) {
    CAPTURE(micro_batch);
    const Folder folder;
    TrainingArguments args = windows_of_three(folder.path);
    args.enable_jit_checkpoint = true;
    const auto stop = std::make_shared<InWindow>(micro_batch, true);
    const ResumedRun stopped = run_with(args, {stop});
    CHECK(stopped.out.stop_signal == SIGTERM);
    CHECK(stop->seen == micro_batch);
    args.resume_from_checkpoint = "true";
    const auto counts = std::make_shared<InWindow>(-1, false);
    const ResumedRun resumed = run_with(args, {counts});
    check_same(straight, resumed);
    // The step in which the run stopped had begun before.
    CHECK(counts->begun == straight.out.global_step - stopped.out.global_step - 1);
  }
}

TEST_CASE("resume: a callback saves inside an accumulation window") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder none, folder;
    TrainingArguments args = windows_of_three(none.path);
    args.async_save = asynchronous;
    const ResumedRun straight = run_with(args, {});
    args.output_dir = folder.path.string();
    check_same(straight, run_with(args, {std::make_shared<InWindow>(4, false)}));
    const fs::path saved = last_checkpoint(folder.path);
    REQUIRE(saved.filename() == "checkpoint-2");
    CHECK(fs::exists(saved / "gradients_0.safetensors"));
    args.resume_from_checkpoint = "true";
    check_same(straight, run_with(args, {}));
    args.gradient_accumulation_steps = 6;
    args.per_device_train_batch_size = 2;
    CHECK(code_of([&] { run_with(args, {}); }) == "trainer.batch-size-changed");
    args.ignore_data_skip = true;  // starts the epoch and its window again
    run_with(args, {});
  }
}

namespace {

// Puts a file in the place of output_dir after the first save, and puts the folder back at step 5.
struct LostFolder : TrainerCallback {
  explicit LostFolder(fs::path folder) : folder(std::move(folder)) {}
  fs::path away() const { return folder.string() + ".away"; }
  void on_save(const TrainerEvent& event, TrainerControl&) override {
    saved.push_back(event.state.global_step);
    if (saved.size() > 1) return;
    fs::rename(folder, away());
    std::ofstream(folder) << "a file";
  }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step != 5) return;
    fs::remove(folder);
    fs::rename(away(), folder);
  }
  fs::path folder;
  std::vector<std::int64_t> saved;
};

}  // namespace

TEST_CASE("Trainer: a checkpoint that cannot be written is reported, and training goes on") {
  const Folder none;
  TrainingArguments args = ten_steps(none.path);
  const ResumedRun straight = run_with(args, {});
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder folder;
    args.output_dir = folder.path.string();
    args.async_save = asynchronous;
    const auto lost = std::make_shared<LostFolder>(folder.path);
    const ResumedRun disturbed = run_with(args, {lost});
    check_same(straight, disturbed);
    CHECK(contains(disturbed.log, "was not saved"));
    CHECK(contains(disturbed.log, folder.path.string()));
    CHECK(lost->saved == std::vector<std::int64_t>{2, 6, 8, 10});
    CHECK(names_of_folders(checkpoints(folder.path)) ==
          FolderNames{"checkpoint-2", "checkpoint-6", "checkpoint-8", "checkpoint-10"});
    for (const fs::path& each : checkpoints(folder.path)) verify_checkpoint(each);
  }
}

TEST_CASE("Trainer: asynchronous checkpoints have the files of synchronous ones") {
  const Folder first, second;
  TrainingArguments args = ten_steps(first.path);
  args.async_save = false;
  run_with(args, {});
  args.output_dir = second.path.string();
  args.async_save = true;
  run_with(args, {});
  for (const fs::path& each : checkpoints(first.path)) {
    for (const auto& entry : fs::directory_iterator(each)) {
      const std::string name = entry.path().filename().string();
      CAPTURE(name);
      if (name == "training_args.json" || name == kManifestFile) continue;  // they name the run
      if (name == "trainer_state.json") continue;                           // it has times
      CHECK(read_file(entry.path()) == read_file(second.path / each.filename() / name));
    }
  }
}

TEST_CASE("resume: a run without remaining steps says so and saves nothing") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  const ResumedRun straight = run(args);
  for (const std::int64_t last : {10, 7}) {
    CAPTURE(last);
    args.max_steps = last;
    args.resume_from_checkpoint = "true";
    const ResumedRun resumed = run(args);
    CHECK(contains(resumed.log, str("nothing is left to train: the run is at step 10 of ", last)));
    CHECK(resumed.out.steps == 0);
    CHECK(resumed.out.global_step == 10);
    CHECK(resumed.out.training_loss == straight.out.training_loss);
    CHECK(checkpoints(folder.path).size() == 5);
    for (const auto& [name, tensor] : straight.weights)
      CHECK(at::equal(tensor, resumed.weights.at(name)));
  }
}

TEST_CASE("resume: a damaged checkpoint is named and set aside, and the one before continues") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  const ResumedRun straight = run(args);
  const fs::path damaged = folder.path / "checkpoint-10" / "optimizer.safetensors";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(damaged, std::ios::binary) << bytes;
  CHECK(code_of([&] { run(resumed_at(args, 10)); }) == "checkpoint.damaged");
  args.resume_from_checkpoint = "true";
  const ResumedRun resumed = run(args);
  CHECK(contains(resumed.log, damaged.string() + ", tensor "));
  CHECK(contains(resumed.log, ": got XXH3-128 "));
  CHECK(contains(resumed.log, "checkpoint-8 at step 8"));
  CHECK(fs::exists(folder.path / "checkpoint-10.damaged"));
  verify_checkpoint(folder.path / "checkpoint-10");  // that of the resumed run
  for (const auto& [name, tensor] : straight.weights)
    CHECK(at::equal(tensor, resumed.weights.at(name)));
}

TEST_CASE("resume: a best checkpoint that is damaged is not loaded at the end") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.learning_rate = 0;  // no score is better than the first one, that of step 2
  args.load_best_model_at_end = true;
  run(args, rows(20), 0, TrainerDataset(rows(20)));
  std::ofstream(folder.path / "checkpoint-2" / "model.safetensors", std::ios::app) << "more";
  CHECK(code_of([&] { run(resumed_at(args, 8), rows(20), 0, TrainerDataset(rows(20))); }) ==
        "checkpoint.damaged");
}

TEST_CASE("resume: partial files of a killed run are removed when the next run starts") {
  const Folder folder;
  const TrainingArguments args = ten_steps(folder.path);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const StagedDirectory staged(folder.path / "checkpoint-4");
    std::ofstream(staged.path() / "model.safetensors") << "half";
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  const auto hidden = [&] {
    FolderNames names;
    for (const auto& entry : fs::directory_iterator(folder.path)) {
      if (entry.path().filename().string().starts_with('.')) names.push_back(entry.path());
    }
    return names;
  };
  REQUIRE(hidden().size() == 1);
  run(args);
  CHECK(hidden().empty());
}

}  // namespace trainer_resume_test
