// Checkpoints inside an accumulation window, and checkpoints that cannot be written.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "base/folder_lock.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/locking_process.h"
#include "unit/trainer/resumed_runs.h"
#include "unit/trainer/tiny.h"

namespace trainer_run_checkpoints_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;
using namespace hasten::resumed_runs;

namespace {

// Runs the Trainer with callbacks. The model is BERT.
ResumedRun run_with(const TrainingArguments& args,
                    const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                    double dropout = 0.1) {
  ResumedRun run;
  const auto model = new_model(dropout);
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

// Counts the micro-batches that end inside a window, and requests a stop or a save at one of them.
struct WindowCallback : TrainerCallback {
  WindowCallback(int at, bool stops) : at(at), stops(stops) {}
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

// An epoch has five micro-batches: a window of three, and one of two.
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
    const auto stop = std::make_shared<WindowCallback>(micro_batch, true);
    const ResumedRun stopped = run_with(args, {stop});
    CHECK(stopped.out.stop_signal == SIGTERM);
    CHECK(stop->seen == micro_batch);
    args.resume_from_checkpoint = "true";
    const auto counts = std::make_shared<WindowCallback>(-1, false);
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
    check_same(straight, run_with(args, {std::make_shared<WindowCallback>(4, false)}));
    const fs::path saved = last_checkpoint(folder.path);
    REQUIRE(saved.filename() == "checkpoint-2");
    CHECK(fs::exists(saved / "gradients_0.safetensors"));
    args.resume_from_checkpoint = "true";
    check_same(straight, run_with(args, {}));
    args.ignore_data_skip = true;  // starts the epoch and its window over
    run_with(args, {});
  }
}

TEST_CASE("resume: micro-batches of another size begin the window of a checkpoint again") {
  const Folder none, folder;
  const ResumedRun straight = run_with(windows_of_three(none.path), {}, 0);
  TrainingArguments args = windows_of_three(folder.path);
  // Two processes save in the second micro-batch of the first window of the second epoch.
  args.per_device_train_batch_size = 2;
  args.enable_jit_checkpoint = true;
  notebook_launcher([&] { run_with(args, {std::make_shared<WindowCallback>(5, true)}, 0); },
                    {.num_processes = 2, .use_cpu = true});
  REQUIRE(fs::exists(folder.path / "checkpoint-2" / "gradients_1.safetensors"));
  args.resume_from_checkpoint = (folder.path / "checkpoint-2").string();
  const auto check_continues = [&](std::int64_t rows, std::int64_t accumulated) {
    args.per_device_train_batch_size = rows;
    args.gradient_accumulation_steps = accumulated;
    const auto counts = std::make_shared<WindowCallback>(-1, false);
    const ResumedRun resumed = run_with(args, {counts}, 0);
    CHECK(counts->begun == 5);
    CHECK(contains(resumed.log, "was saved begins again"));
    REQUIRE(resumed.losses.size() == straight.losses.size());
    for (std::size_t i = 0; i < straight.losses.size(); ++i)
      CHECK(resumed.losses[i] == doctest::Approx(straight.losses[i]).epsilon(1e-4));
  };
  check_continues(4, 3);  // another number of processes
  check_continues(2, 6);
  args.dataloader_drop_last = true;  // then other batches drop other rows
  CHECK(code_of([&] { run_with(args, {}, 0); }) == "trainer.batch-size-changed");
}

namespace {

// Puts a file in the place of output_dir after the first save, and puts the folder back at step 5.
struct FolderHider : TrainerCallback {
  explicit FolderHider(fs::path folder) : folder(std::move(folder)) {}
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

TEST_CASE("Trainer: a checkpoint that cannot be written is reported, and training continues") {
  const Folder none;
  TrainingArguments args = ten_steps(none.path);
  const ResumedRun straight = run_with(args, {});
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder folder;
    args.output_dir = folder.path.string();
    args.async_save = asynchronous;
    const auto lost = std::make_shared<FolderHider>(folder.path);
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

namespace {

// Renames output_dir after the first save. Another job locks a new folder of this name until step 5
// ends.
struct FolderRenamer : TrainerCallback {
  explicit FolderRenamer(fs::path folder) : folder(std::move(folder)) {}
  fs::path away() const { return folder.string() + ".away"; }
  void on_save(const TrainerEvent& event, TrainerControl&) override {
    saved.push_back(event.state.global_step);
    if (saved.size() > 1) {
      const Descriptor file(::open((folder / kLockFile).c_str(), O_RDWR | O_CLOEXEC));
      is_locked = file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
      return;
    }
    fs::rename(folder, away());
    fs::create_directory(folder);
    other = std::make_unique<LockingProcess>(folder);
  }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == 5) other.reset();
  }
  fs::path folder;
  std::vector<std::int64_t> saved;
  std::unique_ptr<LockingProcess> other;
  bool is_locked = false;  // at the end of the latest save
};

}  // namespace

TEST_CASE("Trainer: a run whose folder was renamed saves only where no other job does") {
  const Folder none;
  TrainingArguments args = ten_steps(none.path);
  const ResumedRun straight = run_with(args, {});
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder folder;
    args.output_dir = folder.path.string();
    args.async_save = asynchronous;
    const auto renamer = std::make_shared<FolderRenamer>(folder.path);
    const ResumedRun disturbed = run_with(args, {renamer});
    check_same(straight, disturbed);
    CHECK(contains(disturbed.log, "the checkpoint of step 4 was not saved"));
    CHECK(contains(disturbed.log, "which writes its checkpoints there"));
    CHECK(renamer->saved == std::vector<std::int64_t>{2, 6, 8, 10});
    CHECK(renamer->is_locked);
    CHECK(names_of_folders(checkpoints(renamer->away())) == FolderNames{"checkpoint-2"});
    CHECK(names_of_folders(checkpoints(folder.path)) ==
          FolderNames{"checkpoint-6", "checkpoint-8", "checkpoint-10"});
    CHECK_FALSE(fs::exists(folder.path / kLockFile));
  }
}

TEST_CASE("resume: random numbers that a hook of a save draws do not change the run") {
  const auto run = [](const TrainingArguments& args) {
    const auto model = new_model(0.1);
    Trainer trainer(model, args, {.train_dataset = TrainerDataset(rows(20))});
    trainer.accelerator().register_save_state_pre_hook(
        [](const fs::path&) { (void)torch::rand({1}); });
    trainer.train();
    ResumedRun out;
    for (const auto& [name, tensor] : model->state_dict()) out.weights[name] = tensor.clone();
    return out;
  };
  const Folder whole, rest;
  const ResumedRun straight = run(ten_steps(whole.path));
  TrainingArguments args = ten_steps(rest.path);
  args.resume_from_checkpoint = (whole.path / "checkpoint-4").string();
  check_same(straight, run(args));
}

TEST_CASE("Trainer: the reason why several checkpoints are not saved is logged once") {
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.async_save = false;
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  // The saves of the steps 2, 4 and 8 fail for one reason, and that of step 10 for another.
  int saves = 0;
  trainer.accelerator().register_save_state_pre_hook([&](const fs::path&) {
    ++saves;
    if (saves == 3) return;
    throw IoError("io.write", {.what = saves == 5 ? "the second reason" : "the first reason"});
  });
  CHECK(trainer.train().global_step == 10);
  const auto count = [&](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = log.find(text); at != log.npos; at = log.find(text, at + 1)) ++found;
    return found;
  };
  CHECK_MESSAGE(count("the checkpoint of step 2 was not saved: the first reason") == 1, log);
  CHECK(count("the checkpoint of step 8 was not saved: the first reason") == 1);
  CHECK(count("the checkpoint of step 10 was not saved: the second reason") == 1);
  CHECK(count("the first reason") == 2);
  const std::string folder_of_4 = (folder.path / "checkpoint-4").string();
  CHECK(count(folder_of_4 + " was not saved either, for the same reason") == 1);
  CHECK(names_of_folders(checkpoints(folder.path)) == FolderNames{"checkpoint-6"});
}

TEST_CASE("Trainer: a best checkpoint that cannot be looked up does not end the run") {
  // Replaces the checkpoint of step 2, the best one, by a link to itself.
  struct Replacer : TrainerCallback {
    void on_save(const TrainerEvent& event, TrainerControl&) override {
      const fs::path best = fs::path(event.args.output_dir) / "checkpoint-2";
      if (event.state.global_step != 2) return;
      fs::remove_all(best);
      fs::create_directory_symlink(best, best);
    }
  };
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.learning_rate = 0;  // no score is better than the first one
  args.metric_for_best_model = "loss";
  args.async_save = false;
  const auto model = new_model(0);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .eval_dataset = TrainerDataset(rows(20)),
                   .callbacks = {std::make_shared<Replacer>()},
                   .log_sink = [](std::string_view) {}});
  CHECK(trainer.train().global_step == 10);
  CHECK(names_of_folders(checkpoints(folder.path)) ==
        FolderNames{"checkpoint-4", "checkpoint-6", "checkpoint-8", "checkpoint-10"});
}

TEST_CASE("Trainer: the free space is checked before each checkpoint") {
  // Makes the first checkpoint larger than the free space, until step 5 ends.
  struct Enlarger : TrainerCallback {
    explicit Enlarger(const fs::path& folder) : file(folder / "checkpoint-2" / "large") {}
    void on_save(const TrainerEvent& event, TrainerControl&) override {
      saved.push_back(event.state.global_step);
      if (saved.size() > 1) return;
      std::ofstream(file) << "sparse";
      fs::resize_file(file, fs::space(file).available + (std::uintmax_t{1} << 30));
    }
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      if (event.state.global_step == 5) fs::remove(file);
    }
    fs::path file;
    std::vector<std::int64_t> saved;
  };
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder folder;
    TrainingArguments args = ten_steps(folder.path);
    args.async_save = asynchronous;
    const auto enlarger = std::make_shared<Enlarger>(folder.path);
    const ResumedRun disturbed = run_with(args, {enlarger});
    CHECK(disturbed.out.global_step == 10);
    CHECK(contains(disturbed.log, "the checkpoint of step 4 was not saved"));
    CHECK(contains(disturbed.log, "free space on the disk of " + folder.path.string()));
    CHECK(enlarger->saved == std::vector<std::int64_t>{2, 6, 8, 10});
    CHECK_FALSE(fs::exists(folder.path / "checkpoint-4"));
    verify_checkpoint(folder.path / "checkpoint-2");
  }
}

TEST_CASE("Trainer: the space for gradients is needed only inside an accumulation window") {
  // The first checkpoint is saved in a window. Its gradients are larger than the free space.
  struct Enlarger : TrainerCallback {
    explicit Enlarger(const fs::path& folder) : folder(folder) {}
    void on_save(const TrainerEvent& event, TrainerControl&) override {
      saved.push_back(event.state.global_step);
      const fs::path file = folder / "checkpoint-1" / "gradients_0.safetensors";
      if (saved.size() > 1 || !fs::exists(file)) return;
      fs::resize_file(file, fs::space(file).available + (std::uintmax_t{1} << 30));
    }
    fs::path folder;
    std::vector<std::int64_t> saved;
  };
  const Folder folder;
  TrainingArguments args = windows_of_three(folder.path);
  args.save_strategy = SaveStrategy::steps;
  args.async_save = false;
  const auto enlarger = std::make_shared<Enlarger>(folder.path);
  const ResumedRun run = run_with(args, {std::make_shared<WindowCallback>(3, false), enlarger});
  REQUIRE(enlarger->saved.size() > 1);
  CHECK(enlarger->saved.front() == 1);
  CHECK_FALSE(contains(run.log, "was not saved"));
}

TEST_CASE("Trainer: checkpoints have what was registered on the Accelerator") {
  struct Counter {
    std::map<std::string, double> state() const { return {{"count", count}}; }
    void set_state(const std::map<std::string, double>& state) { count = state.at("count"); }
    double count = 0;
  };
  struct CountingCallback : TrainerCallback {
    explicit CountingCallback(Counter& counter) : counter(counter) {}
    void on_step_end(const TrainerEvent&, TrainerControl&, double) override { ++counter.count; }
    Counter& counter;
  };
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  std::string read;
  const auto train = [&](bool registers) {
    Counter counter;
    Trainer trainer(new_model(), args,
                    {.train_dataset = TrainerDataset(rows(20)),
                     .callbacks = {std::make_shared<CountingCallback>(counter)},
                     .log_sink = [](std::string_view) {}});
    if (registers) {
      Accelerator& accelerator = trainer.accelerator();
      accelerator.register_for_checkpointing(counter);
      accelerator.register_save_state_pre_hook([&](const fs::path& staged) {
        write_file_atomically(staged / "own.txt", str(counter.count));
      });
      accelerator.register_load_state_pre_hook(
          [&](const fs::path& from) { read = read_file(from / "own.txt"); });
    }
    trainer.train();
    return counter.count;
  };
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    args.async_save = asynchronous;
    args.overwrite_output_dir = true;
    CHECK(train(true) == 10);
    CHECK(read_file(folder.path / "checkpoint-4" / "own.txt") == "4");
    args.overwrite_output_dir = false;
    args = resumed_at(args, 4);
    CHECK(train(true) == 10);
    CHECK(read == "4");
    CHECK(code_of([&] { train(false); }) == "checkpoint.other-objects");
    args.resume_from_checkpoint.clear();
  }
}

TEST_CASE("resume: all processes throw if one of them cannot restore a registered object") {
  struct FailingObject {
    std::map<std::string, double> state() const { return {{"rank", 0.0}}; }
    void set_state(const std::map<std::string, double>&) const {
      if (rank == 1) throw std::runtime_error("the object cannot be restored");
    }
    std::int64_t rank = 0;
  };
  const Folder folder;
  TrainingArguments args = ten_steps(folder.path);
  args.max_steps = 2;
  const auto train = [&] {
    FailingObject object;
    Trainer trainer(
        new_model(), args,
        {.train_dataset = TrainerDataset(rows(20)), .log_sink = [](std::string_view) {}});
    object.rank = trainer.accelerator().process().process_index;
    trainer.accelerator().register_for_checkpointing(object);
    std::string error = "none";
    try {
      trainer.train();
    } catch (const Error& of_other_rank) {
      error = of_other_rank.code();
    } catch (const std::runtime_error& own) {
      error = own.what();
    }
    write_file_atomically(folder.path / str("error-", object.rank), error);
  };
  notebook_launcher(train, {.num_processes = 2, .use_cpu = true});
  CHECK(read_file(folder.path / "error-1") == "none");
  args = resumed_at(args, 2);
  notebook_launcher(train, {.num_processes = 2, .use_cpu = true});
  CHECK(read_file(folder.path / "error-0") == "process.failed-elsewhere");
  CHECK(read_file(folder.path / "error-1") == "the object cannot be restored");
}

namespace {

// A registered object. It calls a function when its state is copied for the checkpoint of step 4.
struct FailingState {
  std::map<std::string, double> state() const {
    if (trainer->state().global_step == 4) fail();
    return {{"one", 1.0}};
  }
  void set_state(const std::map<std::string, double>&) const {}
  Trainer* trainer = nullptr;
  std::function<void()> fail;
};

ResumedRun run_with_failing_state(const TrainingArguments& args,
                                  const std::function<void()>& fail) {
  ResumedRun run;
  const auto model = new_model();
  FailingState object{.fail = fail};
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  object.trainer = &trainer;
  trainer.accelerator().register_for_checkpointing(object);
  run.out = trainer.train();
  run.losses = logged(trainer);
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  return run;
}

}  // namespace

TEST_CASE("Trainer: a save without memory or with a failing file system does not end the run") {
  const Folder none;
  TrainingArguments args = ten_steps(none.path);
  const ResumedRun straight = run_with(args, {});
  const std::vector<std::function<void()>> failures = {
      [] { throw std::bad_alloc(); },
      [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "tried to allocate too much"); },
      [] {
        throw fs::filesystem_error("status", "state", std::make_error_code(std::errc::io_error));
      }};
  for (const bool asynchronous : {false, true}) {
    for (std::size_t i = 0; i < failures.size(); ++i) {
      CAPTURE(asynchronous);
      CAPTURE(i);
      const Folder folder;
      args.output_dir = folder.path.string();
      args.async_save = asynchronous;
      const ResumedRun disturbed = run_with_failing_state(args, failures[i]);
      check_same(straight, disturbed);
      // An asynchronous save without memory for its copy becomes a synchronous one and fails too.
      const bool is_repeated = asynchronous && i < 2;
      CHECK(contains(disturbed.log, is_repeated ? "a checkpoint was not saved, and the one before"
                                                : "the checkpoint of step 4 was not saved: "));
      CHECK(names_of_folders(checkpoints(folder.path)) ==
            FolderNames{"checkpoint-2", "checkpoint-6", "checkpoint-8", "checkpoint-10"});
    }
    // An error of the user's own code is not one of the save.
    const Folder folder;
    args.output_dir = folder.path.string();
    CHECK_THROWS_WITH_AS(
        run_with_failing_state(args, [] { throw std::runtime_error("failed in the object"); }),
        "failed in the object", std::runtime_error);
  }
}

TEST_CASE("Trainer: all processes continue if one of them has no memory for a save") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    const Folder folder;
    TrainingArguments args = ten_steps(folder.path);
    args.async_save = asynchronous;
    const auto train = [&] {
      std::string log;
      Trainer trainer(new_model(), args,
                      {.train_dataset = TrainerDataset(rows(20)),
                       .log_sink = [&](std::string_view line) { log += line; }});
      const bool is_second = trainer.accelerator().process().process_index == 1;
      trainer.accelerator().register_save_state_pre_hook([&](const fs::path&) {
        if (is_second && trainer.state().global_step == 4) throw std::bad_alloc();
      });
      const std::int64_t steps = trainer.train().global_step;
      const std::string warning = "the checkpoint of step 4 was not saved: ";
      write_file_atomically(folder.path / (is_second ? "log-1" : "log-0"),
                            str(steps, contains(log, warning) ? " reported" : ""));
    };
    notebook_launcher(train, {.num_processes = 2, .use_cpu = true});
    CHECK(read_file(folder.path / "log-0") == "10 reported");
    CHECK(read_file(folder.path / "log-1") == "10");  // the main process writes the log
    CHECK(names_of_folders(checkpoints(folder.path)) ==
          FolderNames{"checkpoint-2", "checkpoint-6", "checkpoint-8", "checkpoint-10"});
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
      // These files contain the paths of the run, their checksums, or times.
      if (name == "training_args.json" || name == kManifestFile) continue;
      if (name == "trainer_state.json") continue;
      CHECK(read_file(entry.path()) == read_file(second.path / each.filename() / name));
    }
  }
}

}  // namespace trainer_run_checkpoints_test
