#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
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
