// Resumed runs: the checkpoints that they keep, their losses and logs, and damaged checkpoints.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/interrupted_replacement.h"
#include "unit/trainer/resumed_runs.h"
#include "unit/trainer/tiny.h"

namespace trainer_resume_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;
using namespace hasten::resumed_runs;

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

TEST_CASE("resume: a named checkpoint whose replacement was interrupted is found") {
  const Folder folder;
  const TrainingArguments args = ten_steps(folder.path);
  run(args);
  interrupt_replacement(folder.path / "checkpoint-4");
  CHECK(contains(run(resumed_at(args, 4)).log, "checkpoint-4 at step 4"));
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
  // A run that saves nothing leaves the later checkpoints in place.
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
  args.learning_rate = 0;  // no score is better than the first one, at step 2
  args.max_steps = 4;
  const TrainerDataset eval(rows(20));
  const ResumedRun first = run(args, rows(20), 0, eval);
  CHECK(fs::path(first.best).filename() == "checkpoint-2");
  args.resume_from_checkpoint = "true";
  args.max_steps = 10;

  // The best checkpoint of a copied folder is its own, because another run may use the first one.
  const Folder copy;
  fs::create_directories(copy.path.parent_path());
  fs::copy(folder.path, copy.path, fs::copy_options::recursive);
  args.output_dir = copy.path.string();
  CHECK(run(args, rows(20), 0, eval).best == (copy.path / "checkpoint-2").string());
  CHECK(names_of_folders(checkpoints(copy.path)) == FolderNames{"checkpoint-2", "checkpoint-10"});
  args.output_dir = folder.path.string();

  const ResumedRun second = run(args, rows(20), 0, eval);
  CHECK(fs::path(second.best).filename() == "checkpoint-2");
  CHECK(names_of_folders(checkpoints(folder.path)) == FolderNames{"checkpoint-2", "checkpoint-10"});

  // If the whole folder is moved, the best checkpoint is found next to the one that the run resumes
  // from.
  const Folder elsewhere;
  fs::rename(folder.path, elsewhere.path);
  args.output_dir = elsewhere.path.string();
  args.max_steps = 12;
  CHECK(run(args, rows(20), 0, eval).best == (elsewhere.path / "checkpoint-2").string());

  // The state may name a folder that cannot be looked into. A link to itself is one for root, too.
  fs::create_directory_symlink(folder.path, folder.path);
  const fs::path newest = elsewhere.path / "checkpoint-12";
  std::string state = read_file(newest / "trainer_state.json");
  const std::string found = (elsewhere.path / "checkpoint-2").string();
  state.replace(state.find(found), found.size(), (folder.path / "checkpoint-2").string());
  write_file_atomically(newest / "trainer_state.json", state);
  write_manifest(newest);
  args.max_steps = 14;
  args.resume_from_checkpoint = (newest / "").string();
  CHECK(run(args, rows(20), 0, eval).best == found);
  fs::remove(folder.path);
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
  verify_checkpoint(folder.path / "checkpoint-10");  // written by the resumed run
  for (const auto& [name, tensor] : straight.weights)
    CHECK(at::equal(tensor, resumed.weights.at(name)));
}

TEST_CASE("resume: a path that is not a checkpoint is refused, and the error says what it is") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  run(args);
  const auto error_for = [&](const fs::path& path) {
    args.resume_from_checkpoint = path.string();
    try {
      run(args);
    } catch (const Error& error) {
      CHECK(error.code() == "trainer.no-training-state");
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string missing = error_for(folder.path / "checkpoint-7");
  CHECK_MESSAGE(contains(missing, "got no such folder"), missing);
  const std::string above = error_for(folder.path);
  CHECK_MESSAGE(contains(above, "got the folder of checkpoint-2, checkpoint-4, "), above);
  CHECK_MESSAGE(contains(above, "such as " + (folder.path / "checkpoint-10").string()), above);
}

TEST_CASE("resume: a best checkpoint that is damaged is reported, and the last weights stay") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.learning_rate = 0;  // no score is better than the first one, at step 2
  args.load_best_model_at_end = true;
  const ResumedRun straight = run(args, rows(20), 0, TrainerDataset(rows(20)));
  const fs::path best = folder.path / "checkpoint-2";
  REQUIRE(straight.best == best.string());
  std::string bytes = read_file(best / "model.safetensors");
  bytes[bytes.size() - 1] ^= 1;
  std::ofstream(best / "model.safetensors", std::ios::binary) << bytes;
  // A job that is started again reports the same damage again.
  for (int attempt = 1; attempt <= 2; ++attempt) {
    CAPTURE(attempt);
    const ResumedRun resumed = run(resumed_at(args, 8), rows(20), 0, TrainerDataset(rows(20)));
    CHECK(resumed.out.global_step == 10);
    CHECK_MESSAGE(contains(resumed.log, "the best checkpoint " + best.string() +
                                            " is damaged, so the model keeps the weights of the "
                                            "last step: " +
                                            (best / "model.safetensors").string()),
                  resumed.log);
    CHECK(resumed.best.empty());
    for (const auto& [name, tensor] : straight.weights) {
      CAPTURE(name);
      CHECK(at::equal(tensor, resumed.weights.at(name)));
    }
  }
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
