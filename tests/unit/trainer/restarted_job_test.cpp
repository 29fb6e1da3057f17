// Jobs that are restarted continue their own run, and no other.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/locking_process.h"
#include "unit/scoped_environment.h"
#include "unit/trainer/resumed_runs.h"
#include "unit/trainer/tiny.h"

namespace trainer_restarted_job_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;
using namespace hasten::resumed_runs;

TEST_CASE("resume: a job that is restarted continues, and never the run of another job") {
  struct KillingCallback : TrainerCallback {
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
      if (dies) parts.callbacks = {std::make_shared<KillingCallback>()};
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

TEST_CASE("resume: a job that Slurm starts again continues, and no other job of Slurm does") {
  struct StoppingCallback : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      const std::string restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
      if (event.state.global_step == 5 && restarts == "0") throw std::domain_error("a time limit");
    }
  };
  const Folder folder;
  const auto start = [&](const char* number, const char* restarts) {
    const ScopedVariable slurm("SLURM_JOB_ID", number), count("SLURM_RESTART_COUNT", restarts);
    const auto train = [&] {
      TrainingArguments args = ten_steps(folder.path);
      args.async_save = false;
      Trainer(new_model(), args,
              {.train_dataset = TrainerDataset(rows(40)),
               .callbacks = {std::make_shared<StoppingCallback>()},
               .log_sink = [](std::string_view) {}})
          .train();
    };
    notebook_launcher(train, {.num_processes = 2, .use_cpu = true});
  };
  CHECK_THROWS(start("4711", "0"));
  CHECK_NOTHROW(start("4711", "1"));
  CHECK_THROWS(start("4712", "1"));
}

TEST_CASE("resume: a copy of a job's checkpoints without hidden files is continued") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  {
    const ScopedTorchrunVariables job("nightly", "0");
    run(args);
  }
  for (const fs::path& each : checkpoints(folder.path)) REQUIRE(fs::remove(each / ".hasten-job"));
  args.max_steps = 12;
  args.resume_from_checkpoint = "true";
  args.log_level = LogLevel::info;
  CHECK(contains(run(args).log, "checkpoint-10 at step 10"));
  CHECK(damaged_checkpoints(folder.path).empty());
}

TEST_CASE("resume: a new job with the name of an earlier one does not continue its run") {
  const Folder folder;
  const auto attempt = [&](const char* restarts) {
    const ScopedTorchrunVariables job("nightly", restarts);
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
    const ScopedTorchrunVariables job("nightly", restarts);
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
  struct ThrowingCallback : TrainerCallback {
    void on_step_end(const TrainerEvent&, TrainerControl&, double) override {
      throw std::domain_error("the first attempt fails");
    }
  };
  const Folder folder;
  fs::create_directories(folder.path / "checkpoint-4.damaged");
  const auto attempt = [&](const char* restarts) {
    const ScopedTorchrunVariables job("nightly", restarts);
    TrainerParts parts{.train_dataset = TrainerDataset(rows(20)),
                       .log_sink = [](std::string_view) {}};
    if (*restarts == '0') parts.callbacks = {std::make_shared<ThrowingCallback>()};
    Trainer(new_model(), ten_steps(folder.path), parts).train();
  };
  CHECK_THROWS_AS(attempt("0"), std::domain_error);
  CHECK_NOTHROW(attempt("1"));
  // If the run's own checkpoints are damaged, that is an error, and the run never starts over.
  for (const fs::path& each : checkpoints(folder.path))
    fs::rename(each, each.string() + ".damaged.2");
  std::string message;
  const auto third_attempt = [&] {
    try {
      attempt("2");
    } catch (const Error& error) {
      message = error.what();
      throw;
    }
  };
  CHECK(code_of(third_attempt) == "trainer.no-checkpoint");
  CHECK(contains(message, "got only damaged checkpoints: checkpoint-"));
  CHECK(contains(message, ".damaged.2, expected a complete one"));
}

TEST_CASE("resume: a restarted job continues what it saved, not the checkpoint that it was given") {
  struct KillingCallback : TrainerCallback {
    KillingCallback(std::int64_t step, bool damages) : step(step), damages(damages) {}
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
                       .callbacks = {std::make_shared<KillingCallback>(dies, damages)},
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
  // Until the job saves for the first time, the later checkpoints belong to the first job.
  for (const std::int64_t dies : {3, 5}) {
    fs::remove(log);
    notebook_launcher(job(folder, dies, given.string()), options);
    const std::string text = read_file(log), first = "checkpoint-2 at step 2";
    CHECK(contains(text, first));
    CHECK(contains(text.substr(text.find(first) + 1), first) == (dies == 3));
    CHECK(contains(text, "checkpoint-4 at step 4") == (dies == 5));
    CHECK(read_file(weights) == expected);
  }
  // If its own checkpoint is damaged, the job begins with the checkpoint that it was given.
  fs::remove(log);
  notebook_launcher(job(folder, 5, given.string(), /*damages=*/true), options);
  CHECK(contains(read_file(log), "checkpoint-4.damaged"));
  CHECK_FALSE(contains(read_file(log), "checkpoint-4 at step 4"));
  CHECK(read_file(weights) == expected);
}

TEST_CASE("resume: a launcher that continues a run does not go back to a given checkpoint") {
  const Folder given, folder;
  TrainingArguments args = ten_steps(given.path);
  run(args);
  args.resume_from_checkpoint = (given.path / "checkpoint-4").string();
  args.output_dir = folder.path.string();
  args.log_level = LogLevel::info;
  args.max_steps = 8;
  const ScopedVariable resume("HASTEN_RESUME_RUNS", "1");
  CHECK(contains(run(args).log, "checkpoint-4 at step 4"));
  args.max_steps = 10;
  CHECK(contains(run(args).log, (folder.path / "checkpoint-8").string() + " at step 8"));
  // In the folder of the run itself, nobody knows which checkpoints are to be continued.
  args.resume_from_checkpoint = (folder.path / "checkpoint-6").string();
  args.max_steps = 12;
  CHECK(code_of([&] { run(args); }) == "trainer.resume-point");
  CHECK(checkpoints(folder.path).back().filename() == "checkpoint-10");
  args.resume_from_checkpoint = (folder.path / "checkpoint-10").string();
  CHECK(contains(run(args).log, "checkpoint-10 at step 10"));
}

TEST_CASE("output_dir: a second job is refused before it begins, and harms no checkpoint") {
  const Folder folder;
  run(ten_steps(folder.path));
  const std::size_t saved = checkpoints(folder.path).size();
  TrainingArguments args = ten_steps(folder.path);
  args.overwrite_output_dir = true;
  {
    const LockingProcess first(folder.path);
    // Without the lock, the run would begin: it would throw "trainer.no-train-data".
    CHECK(code_of([&] { Trainer(new_model(), args, TrainerParts{}).train(); }) ==
          "io.folder-in-use");
  }
  CHECK(checkpoints(folder.path).size() == saved);
  CHECK(code_of([&] { run(args); }) == "none");
  CHECK_FALSE(fs::exists(folder.path / kLockFile));
}

TEST_CASE("output_dir: the checkpoints of another run are refused before the run begins") {
  const Folder folder;
  run(ten_steps(folder.path));
  CHECK(code_of([&] { Trainer(new_model(), ten_steps(folder.path), TrainerParts{}).train(); }) ==
        "trainer.output-in-use");
}

TEST_CASE("output_dir: a run holds the lock until its last asynchronous save is written") {
  struct Callback : TrainerCallback {
    explicit Callback(fs::path folder) : folder(std::move(folder)) {}
    void on_train_end(const TrainerEvent&, TrainerControl&) override {
      was_locked = fs::exists(folder / kLockFile);
    }
    fs::path folder;
    bool was_locked = false;
  };
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.async_save = true;
  const auto callback = std::make_shared<Callback>(folder.path);
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .callbacks = {callback},
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  CHECK(callback->was_locked);
  CHECK_FALSE(fs::exists(folder.path / kLockFile));
}

}  // namespace trainer_restarted_job_test
