#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_trackers_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

struct RecordingTracker : Tracker {
  std::string name() const override { return "recording"; }
  void store_init_configuration(const TrackedConfiguration& values) override {
    calls.push_back(str("store ", values.size()));
  }
  void log(const TrackedScalars& values, std::int64_t step) override {
    for (const auto& [key, value] : values) calls.push_back(str(key, " ", value, " at ", step));
  }
  void log_text(const std::string& key, const std::string& text, std::int64_t) override {
    calls.push_back(str(key, " ", text));
  }
  void finish() override { calls.emplace_back("finish"); }
  std::vector<std::string> calls;
};

// Keeps its values in memory, and records the steps from which it continues.
struct ResumableTracker : RecordingTracker {
  TrackerPosition position() const override {
    return {{"calls", static_cast<double>(calls.size())}};
  }
  bool resume(const TrackerPosition&, std::int64_t step) override {
    resumed_steps.push_back(step);
    return true;
  }
  std::vector<std::int64_t> resumed_steps;
};

}  // namespace

TEST_CASE("trackers: named trackers and a tracker of the caller receive the logged values") {
  const TemporaryDirectory folder;
  const auto own = std::make_shared<RecordingTracker>();
  Accelerator accelerator({.cpu = true, .log_with = {"jsonl", own}, .logging_dir = folder.path()});
  accelerator.init_trackers("sst2", {{"learning_rate", 2e-5}, {"seed", 3}});
  accelerator.log({{"loss", 0.5}}, 1);
  accelerator.get_tracker("recording").log_text("note", "text", 1);
  CHECK(accelerator.get_tracker("jsonl").name() == "jsonl");
  CHECK(code_of([&] { accelerator.get_tracker("csv"); }) == "track.not-used");
  accelerator.end_training();
  CHECK(own->calls == std::vector<std::string>{"store 2", "loss 0.5 at 1", "note text", "finish"});
  const std::string lines = read_file(folder.path() / "sst2" / "metrics.jsonl");
  CHECK(lines.find("\"config\"") != std::string::npos);
  CHECK(lines.find("\"loss\":0.5") != std::string::npos);
  CHECK(code_of([&] { accelerator.log({{"loss", 0.5}}, 2); }) == "track.not-started");
}

TEST_CASE("trackers: load_state takes back what was logged after the checkpoint") {
  for (const bool loads_first : {false, true}) {
    CAPTURE(loads_first);
    const TemporaryDirectory folder;
    const std::filesystem::path file = folder.path() / "sst2" / "metrics.jsonl",
                                state = folder.path() / "state";
    torch::nn::Linear net(2, 2);
    const auto run = [&](const auto& body) {
      Accelerator accelerator({.cpu = true, .log_with = {"jsonl"}, .logging_dir = folder.path()});
      auto [model] = accelerator.prepare(net);
      body(accelerator);
    };
    std::string saved;
    run([&](Accelerator& accelerator) {
      accelerator.init_trackers("sst2", {{"seed", 3}});
      accelerator.log({{"loss", 0.5}}, 1);
      accelerator.save_state(state);
      saved = read_file(file);
      accelerator.log({{"loss", 0.25}}, 2);
    });
    REQUIRE(read_file(file) != saved);
    run([&](Accelerator& accelerator) {
      if (loads_first) accelerator.load_state(state);
      accelerator.init_trackers("sst2", {{"seed", 3}});
      if (!loads_first) accelerator.load_state(state);
      CHECK(read_file(file) == saved);
    });
  }
}

TEST_CASE("trackers: load_state at the end of a run keeps what the run has logged") {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "sst2" / "metrics.jsonl",
                              best = folder.path() / "best";
  torch::nn::Linear net(2, 2);
  Accelerator accelerator({.cpu = true, .log_with = {"jsonl"}, .logging_dir = folder.path()});
  auto [model] = accelerator.prepare(net);
  accelerator.init_trackers("sst2");
  accelerator.log({{"loss", 0.5}}, 1);
  accelerator.save_state(best);
  accelerator.log({{"loss", 0.75}}, 2);
  const std::string logged = read_file(file);
  accelerator.load_state(best);
  CHECK(read_file(file) == logged);
  CHECK_FALSE(std::filesystem::exists(file.parent_path() / "abandoned-metrics.jsonl"));
}

TEST_CASE("trackers: a run continues them after the largest step that was logged") {
  const TemporaryDirectory folder;
  const auto tracker = std::make_shared<ResumableTracker>();
  torch::nn::Linear net(2, 2);
  const AcceleratorOptions options{.cpu = true, .log_with = {tracker}};
  {
    Accelerator accelerator(options);
    auto [model] = accelerator.prepare(net);
    accelerator.init_trackers("sst2");
    accelerator.log({{"train/loss", 0.5}}, 300);
    accelerator.log({{"eval/accuracy", 0.9}}, 1);  // the number of an epoch
    accelerator.save_state(folder.path() / "state");
  }
  Accelerator accelerator(options);
  auto [model] = accelerator.prepare(net);
  accelerator.init_trackers("sst2");
  accelerator.load_state(folder.path() / "state");
  CHECK(tracker->resumed_steps == std::vector<std::int64_t>{300});
}

TEST_CASE("trackers: the numbers of a position may be NaN and infinite") {
  struct LastValueTracker : RecordingTracker {
    TrackerPosition position() const override {
      return {{"infinite", -std::numeric_limits<double>::infinity()}, {"nan", std::nan("")}};
    }
    bool resume(const TrackerPosition& position, std::int64_t) override {
      resumed = position;
      return true;
    }
    TrackerPosition resumed;
  };
  const TemporaryDirectory folder;
  const auto tracker = std::make_shared<LastValueTracker>();
  torch::nn::Linear net(2, 2);
  for (const bool loads : {false, true}) {
    Accelerator accelerator({.cpu = true, .log_with = {tracker}});
    auto [model] = accelerator.prepare(net);
    accelerator.init_trackers("sst2");
    if (loads) {
      accelerator.load_state(folder.path() / "state");
    } else {
      accelerator.save_state(folder.path() / "state");
    }
  }
  REQUIRE(tracker->resumed.size() == 2);
  CHECK(tracker->resumed.at("infinite") == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(tracker->resumed.at("nan")));
}

TEST_CASE("trackers: load_state changes no tracker if the state cannot be restored") {
  const TemporaryDirectory folder;
  const std::filesystem::path state = folder.path() / "state";
  const auto tracker = std::make_shared<ResumableTracker>();
  torch::nn::Linear net(2, 2);
  const AcceleratorOptions options{.cpu = true, .log_with = {tracker}};
  {
    Accelerator accelerator(options);
    auto [model] = accelerator.prepare(net);
    accelerator.init_trackers("sst2");
    accelerator.log({{"loss", 0.5}}, 1);
    accelerator.save_state(state);
  }
  const TensorDict of_another_rank = {{"rank1.cpu", torch::ones({1})}};
  save_safetensors(state / "random_state.safetensors", of_another_rank);
  write_manifest(state);
  Accelerator accelerator(options);
  auto [model] = accelerator.prepare(net);
  accelerator.init_trackers("sst2");
  CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.random-state");
  CHECK(tracker->resumed_steps.empty());
}

TEST_CASE("log: without log_with it does nothing") {
  Accelerator accelerator({.cpu = true});
  accelerator.init_trackers("sst2");
  accelerator.log({{"loss", 0.5}}, 1);
  accelerator.end_training();
  accelerator.log({{"loss", 0.5}}, 2);
  CHECK(code_of([&] { accelerator.get_tracker("jsonl"); }) == "track.not-used");
}

TEST_CASE("log_with: an invalid tracker is reported before training") {
  CHECK(code_of([] { Accelerator({.cpu = true, .log_with = {"tensorbord"}}); }) == "track.unknown");
  Accelerator without_folder({.cpu = true, .log_with = {"tensorboard"}});
  CHECK(code_of([&] { without_folder.init_trackers("sst2"); }) == "track.logging-dir");
}

TEST_CASE("trackers: with two processes only the main process keeps values; both get its errors") {
  const TemporaryDirectory folder;
  notebook_launcher(
      [&] {
        const auto own = std::make_shared<RecordingTracker>();
        Accelerator accelerator(
            {.cpu = true, .log_with = {"csv", own}, .logging_dir = folder.path()});
        accelerator.init_trackers("run");
        accelerator.log({{"loss", 0.5}}, 1);
        accelerator.get_tracker("recording").log_text("note", "text", 1);
        accelerator.end_training();
        require(own->calls.empty() != accelerator.is_main_process(), "who keeps the values");
        Accelerator failing({.cpu = true, .log_with = {"csv"}, .logging_dir = "/dev/null/logs"});
        require(code_of([&] { failing.init_trackers("run"); }) == "io.mkdir", "the code");
      },
      {.num_processes = 2});
  const auto rows = split(read_file(folder.path() / "run" / "metrics.csv"), '\n');
  CHECK(rows.size() == 3);  // the header, one value, and the empty text after the last line end
}

}  // namespace prepare_trackers_test
