// report_to, logging_dir and run_name: what a run reports to trackers, and where.
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/tracking_callback.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_tracking_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

TrainingArguments logged_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 4;
  args.logging_steps = 2;
  args.log_level = LogLevel::error;
  return args;
}

std::vector<nlohmann::json> json_lines(const fs::path& file) {
  std::vector<nlohmann::json> out;
  for (const std::string& line : split(read_file(file), '\n'))
    if (!line.empty()) out.push_back(nlohmann::json::parse(line));
  return out;
}

// Removes the variable for the test, in case the caller's environment has it.
struct NoLoggingVariable {
  NoLoggingVariable() { ::unsetenv("TENSORBOARD_LOGGING_DIR"); }
  ~NoLoggingVariable() { ::unsetenv("TENSORBOARD_LOGGING_DIR"); }
};

struct NameRecordingTracker : Tracker {
  explicit NameRecordingTracker(bool unchanged) : unchanged(unchanged) {}
  std::string name() const override { return "names"; }
  void store_init_configuration(const TrackedConfiguration& values) override {
    configuration = values;
  }
  void log(const TrackedScalars& values, std::int64_t step) override {
    for (const auto& [key, value] : values) names.insert(key);
    last_step = step;
  }
  void log_text(const std::string& key, const std::string&, std::int64_t) override {
    names.insert(key);
  }
  bool keeps_log_names() const override { return unchanged; }
  void finish() override { ++finished; }
  bool unchanged;
  TrackedConfiguration configuration;
  std::set<std::string> names;
  std::int64_t last_step = -1;
  int finished = 0;
};

}  // namespace

TEST_CASE(
    "report_to: files in logging_dir with Hugging Face's names, and evaluations after train") {
  const NoLoggingVariable variable;
  const tiny_runs::Folder folder;
  TrainingArguments args = logged_steps(folder.path);
  args.report_to = {"all"};
  args.logging_dir = (folder.path / "logs").string();
  args.run_name = "third";
  {
    Trainer trainer(
        new_model(), args,
        {.train_dataset = TrainerDataset(rows(16)), .eval_dataset = TrainerDataset(rows(8))});
    trainer.train();
    trainer.evaluate();
  }
  const fs::path run = folder.path / "logs" / "third";
  const auto lines = json_lines(run / "metrics.jsonl");
  REQUIRE(lines.size() == 3 + 2 + 1 + 1);
  CHECK(lines[0]["config"]["learning_rate"] == 5e-5);
  CHECK(lines[0]["config"]["vocab_size"] == 60);  // of the model
  CHECK(lines[0]["config"]["use_cpu"] == true);
  CHECK(nlohmann::json::parse(lines[1]["args"].get<std::string>())["max_steps"] == 4);
  CHECK(nlohmann::json::parse(lines[2]["model_config"].get<std::string>())["vocab_size"] == 60);
  CHECK(lines[3]["step"] == 2);
  for (const char* const name :
       {"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch"})
    CHECK(lines[3].contains(name));
  CHECK(lines[4]["step"] == 4);
  CHECK(lines[5].contains("train/train_runtime"));
  CHECK(lines[6].contains("eval/loss"));
  CHECK(lines[6].contains("train/epoch"));
  CHECK(lines[6]["step"] == 4);
  CHECK(fs::exists(run / "metrics.csv"));
  int event_files = 0;
  for (const auto& entry : fs::directory_iterator(run))
    event_files += starts_with(entry.path().filename().string(), "events.out.tfevents.");
  CHECK(event_files == 1);
}

TEST_CASE("report_to: the files of a resumed run equal those of an undisturbed one") {
  const NoLoggingVariable variable;
  struct FailingCallback : TrainerCallback {
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      if (event.state.global_step == 7) throw std::domain_error("the run ends here");
    }
  };
  const tiny_runs::Folder folder;
  const auto args_in = [&](const std::string& name) {
    TrainingArguments args = short_run(folder.path / name);
    args.max_steps = 10;
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 4;
    args.async_save = false;
    args.log_level = LogLevel::error;
    args.report_to = {"jsonl", "csv", "tensorboard"};
    args.logging_dir = (folder.path / "logs" / name).string();
    return args;
  };
  const auto train = [&](const TrainingArguments& args, bool fails) {
    TrainerParts parts{.train_dataset = TrainerDataset(rows(20)),
                       .log_sink = [](std::string_view) {}};
    if (fails) parts.callbacks = {std::make_shared<FailingCallback>()};
    Trainer(new_model(), args, parts).train();
  };
  train(args_in("straight"), false);
  CHECK_THROWS_AS(train(args_in("stopped"), true), std::domain_error);
  TrainingArguments resumed = args_in("stopped");
  resumed.resume_from_checkpoint = "true";
  train(resumed, false);
  // Returns the lines without times and figures of speed.
  const auto lines_in = [&](const std::string& name) {
    std::vector<std::string> lines;
    for (const nlohmann::json& line : json_lines(folder.path / "logs" / name / "metrics.jsonl")) {
      if (line.contains("config") || line.contains("args")) continue;
      nlohmann::json kept = line;
      kept.erase("time");
      for (const auto& [key, value] : line.items()) {
        if (key.find("runtime") != std::string::npos || key.find("per_second") != std::string::npos)
          kept.erase(key);
      }
      lines.push_back(kept.dump());
    }
    return lines;
  };
  CHECK(lines_in("stopped") == lines_in("straight"));
  const auto count_in = [&](const std::string& name, const std::string& file) {
    return split(read_file(folder.path / "logs" / name / file), '\n').size();
  };
  for (const std::string file : {"metrics.jsonl", "metrics.csv"}) {
    CAPTURE(file);
    CHECK(count_in("stopped", file) == count_in("straight", file));
    CHECK(fs::exists(folder.path / "logs" / "stopped" / ("abandoned-" + file)));
    CHECK_FALSE(fs::exists(folder.path / "logs" / "straight" / ("abandoned-" + file)));
  }
}

TEST_CASE("report_to: a run that begins again without a checkpoint logs each step once") {
  const NoLoggingVariable variable;
  const tiny_runs::Folder folder;
  const auto args_in = [&](const std::string& name) {
    TrainingArguments args = logged_steps(folder.path / name);
    args.logging_steps = 1;
    args.report_to = {"jsonl", "csv"};
    args.logging_dir = (folder.path / "logs" / name).string();
    return args;
  };
  const auto train = [&](const std::string& name, const std::shared_ptr<TrainerCallback>& fails) {
    TrainerParts parts{.train_dataset = TrainerDataset(rows(16)),
                       .log_sink = [](std::string_view) {}};
    if (fails) parts.callbacks = {fails};
    return std::make_unique<Trainer>(new_model(), args_in(name), parts);
  };
  const auto lines_in = [&](const std::string& name, const std::string& file) {
    return split(read_file(folder.path / "logs" / name / file), '\n').size();
  };
  train("straight", nullptr)->train();

  SUBCASE("because the first call of train() has thrown") {
    struct FailingCallback : TrainerCallback {
      void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
        if (event.state.global_step == 3 && !std::exchange(has_failed, true))
          throw std::domain_error("the run ends here");
      }
      bool has_failed = false;
    };
    const auto trainer = train("again", std::make_shared<FailingCallback>());
    CHECK_THROWS_AS(trainer->train(), std::domain_error);
    trainer->train();
  }
  SUBCASE("because the job was restarted") {
    struct KillingCallback : TrainerCallback {
      void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
        const std::string restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
        if (event.state.global_step == 3 && restarts == "0") ::kill(::getpid(), SIGKILL);
      }
    };
    notebook_launcher([&] { train("again", std::make_shared<KillingCallback>())->train(); },
                      {.num_processes = 2, .use_cpu = true, .max_restarts = 1});
  }
  for (const std::string file : {"metrics.jsonl", "metrics.csv"}) {
    CAPTURE(file);
    CHECK(lines_in("again", file) == lines_in("straight", file));
    CHECK(fs::exists(folder.path / "logs" / "again" / ("abandoned-" + file)));
  }
}

TEST_CASE("folder_of_trackers: logging_dir, the variable or the default determine the folder") {
  const NoLoggingVariable variable;
  TrainingArguments args;
  args.output_dir = "out";
  const std::string by_default = folder_of_trackers(args).string();
  CHECK(starts_with(by_default, "out/runs/"));
  CHECK(by_default.size() > std::string("out/runs/Nov23_14-05-59_").size());
  args.run_name = "third";
  CHECK(folder_of_trackers(args) == "out/runs/third");
  ::setenv("TENSORBOARD_LOGGING_DIR", "elsewhere", 1);
  CHECK(folder_of_trackers(args) == "elsewhere/third");
  args.logging_dir = "logs";
  CHECK(folder_of_trackers(args) == "logs/third");
  args.run_name.clear();
  CHECK(folder_of_trackers(args) == "logs");
}

TEST_CASE("TrackingCallback: trackers of the caller get grouped or unchanged names") {
  const tiny_runs::Folder folder;
  const auto grouped = std::make_shared<NameRecordingTracker>(false),
             unchanged = std::make_shared<NameRecordingTracker>(true);
  {
    Trainer trainer(
        new_model(), logged_steps(folder.path),
        {.train_dataset = TrainerDataset(rows(16)), .eval_dataset = TrainerDataset(rows(8))});
    trainer.add_callback(std::make_shared<TrackingCallback>(
        std::vector<std::shared_ptr<Tracker>>{grouped, unchanged}));
    trainer.train();
    trainer.evaluate();
    trainer.evaluate("test");
    CHECK(grouped->finished == 0);
  }
  CHECK(grouped->finished == 1);
  CHECK(grouped->last_step == 4);
  CHECK(std::get<double>(grouped->configuration.at("learning_rate")) == 5e-5);
  CHECK(std::get<std::int64_t>(grouped->configuration.at("max_steps")) == 4);
  CHECK(std::get<bool>(grouped->configuration.at("use_cpu")));
  CHECK(grouped->configuration.count("eval_steps") == 0);  // It is not set.
  for (const char* const name : {"train/loss", "eval/loss", "test/loss", "args", "model_config"})
    CHECK(grouped->names.count(name) == 1);
  for (const char* const name : {"loss", "eval_loss", "test_loss"})
    CHECK(unchanged->names.count(name) == 1);
}

TEST_CASE("TrackingCallback: each tracker gets its own position, with any name and number") {
  struct PositionTracker : NameRecordingTracker {
    PositionTracker(std::string name, TrackerPosition own)
        : NameRecordingTracker(false), own_name(std::move(name)), own(std::move(own)) {}
    std::string name() const override { return own_name; }
    TrackerPosition position() const override { return own; }
    bool resume(const TrackerPosition& position, std::int64_t) override {
      resumed = position;
      return true;
    }
    std::string own_name;
    TrackerPosition own, resumed;
  };
  const tiny_runs::Folder folder;
  TrainingArguments args = logged_steps(folder.path);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  const std::vector<std::shared_ptr<PositionTracker>> trackers = {
      std::make_shared<PositionTracker>("a", TrackerPosition{{"b.bytes", 1}}),
      std::make_shared<PositionTracker>("a.b", TrackerPosition{{"bytes", 2}}),
      std::make_shared<PositionTracker>("a%2Eb", TrackerPosition{{"bytes", 3}}),
      std::make_shared<PositionTracker>("nan", TrackerPosition{{"loss", std::nan("")}})};
  for (const char* const resume : {"", "true"}) {
    args.resume_from_checkpoint = resume;
    Trainer trainer(new_model(), args,
                    {.train_dataset = TrainerDataset(rows(16)),
                     .callbacks = {std::make_shared<TrackingCallback>(
                         std::vector<std::shared_ptr<Tracker>>(trackers.begin(), trackers.end()))},
                     .log_sink = [](std::string_view) {}});
    trainer.train();
    args.max_steps += 2;
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(trackers[i]->resumed == trackers[i]->own);
  REQUIRE(trackers[3]->resumed.size() == 1);
  CHECK(std::isnan(trackers[3]->resumed.at("loss")));
}

TEST_CASE("report_to: every name of the option is a tracker") {
  for (const std::string& name : tracker_names()) {
    TrainingArguments args;
    args.report_to = {name};
    CHECK_NOTHROW(validate(args));
  }
}

TEST_CASE("report_to: without a name of a tracker nothing is written") {
  const tiny_runs::Folder folder;
  TrainingArguments args = logged_steps(folder.path);
  Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(16))}).train();
  CHECK(!fs::exists(folder.path / "runs"));
}

}  // namespace trainer_tracking_test
