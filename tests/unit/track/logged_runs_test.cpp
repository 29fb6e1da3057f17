#include "track/logged_runs.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/track/tracker.h"
#include "track/plot.h"
#include "unit/code_of.h"

namespace logged_runs_test {

using namespace hasten;
namespace fs = std::filesystem;

const LoggedCurve kLoss = {{0, 1.0}, {10, 0.5}};

// Logs the same values with one kind of tracker.
void log_with(const std::string& tracker, const fs::path& folder) {
  const auto to = make_tracker(tracker, {.folder = folder});
  to->store_init_configuration({{"seed", 3}});
  to->log({{"train/loss", 2.0}}, 0);
  to->log({{"train/loss", 1.0}}, 0);  // The last value of a step counts.
  to->log({{"train/loss", 0.5}, {"eval/loss", INFINITY}}, 10);
  to->log_text("note", "text", 10);
}

TEST_CASE("read_logged_runs: each kind of file has the same curves") {
  for (const std::string kind : {"tensorboard", "jsonl", "csv"}) {
    CAPTURE(kind);
    const TemporaryDirectory folder;
    log_with(kind, folder.path() / "a");
    log_with(kind, folder.path() / "b" / "c");
    const auto runs = read_logged_runs({folder.path()});
    REQUIRE(runs.size() == 2);
    CHECK(runs[0].name == (folder.path() / "a").string());
    CHECK(runs[1].name == (folder.path() / "b" / "c").string());
    CHECK(runs[1].curves.at("train/loss") == kLoss);
    CHECK(!std::isfinite(runs[1].curves.at("eval/loss").at(10)));
    CHECK(runs[1].curves.size() == 2);
  }
}

TEST_CASE("read_logged_runs: a run that was resumed has no values of steps that it did again") {
  const TemporaryDirectory folder;
  TrackerPosition saved;
  for (const bool resumes : {false, true}) {
    const auto tracker = make_tracker("tensorboard", {.folder = folder.path()});
    if (resumes) tracker->resume(saved, 10);
    if (!resumes) log_with("tensorboard", folder.path());
    tracker->log({{"train/loss", resumes ? 0.2 : 0.3}}, 20);
    if (!resumes) tracker->log({{"train/loss", 0.1}, {"late", 1.0}}, 30);
    saved = tracker->position();
  }
  const auto curves = read_logged_runs({folder.path()}).at(0).curves;
  CHECK(curves.at("train/loss") == LoggedCurve{{0, 1.0}, {10, 0.5}, {20, 0.2f}});
  CHECK(curves.count("late") == 0);
}

TEST_CASE("read_logged_runs: a folder with several kinds of files is one run") {
  const TemporaryDirectory folder;
  for (const std::string kind : {"tensorboard", "jsonl", "csv"}) log_with(kind, folder.path());
  const auto runs = read_logged_runs({folder.path(), folder.path() / "metrics.csv"});
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].curves.at("train/loss") == kLoss);
  CHECK(runs[1].name == (folder.path() / "metrics.csv").string());
}

TEST_CASE("read_logged_runs: it reads trainer_state.json of a folder or of its newest checkpoint") {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& name, const std::string& loss) {
    make_directories(folder.path() / name);
    write_file_atomically(folder.path() / name / "trainer_state.json",
                          "{\"log_history\": [{\"loss\": " + loss +
                              ", \"step\": 10}, {\"eval_loss\": 3, \"step\": 10}]}");
  };
  write("checkpoint-9", "9");
  write("checkpoint-10", "10");
  const auto curves = read_logged_runs({folder.path()}).front().curves;
  CHECK(curves.at("train/loss") == LoggedCurve{{10, 10.0}});
  CHECK(curves.at("eval/loss") == LoggedCurve{{10, 3.0}});
  write("", "11");
  CHECK(read_logged_runs({folder.path()}).front().curves.at("train/loss").at(10) == 11);
}

TEST_CASE("read_logged_runs: an incomplete end of a file is left out") {
  for (const std::string kind : {"tensorboard", "jsonl"}) {
    const TemporaryDirectory folder;
    log_with(kind, folder.path());
    const fs::path file = fs::directory_iterator(folder.path())->path();
    const std::string content = read_file(file);
    for (std::size_t size = 0; size < content.size(); ++size) {
      std::ofstream(file, std::ios::binary) << content.substr(0, size);
      try {
        for (const LoggedRun& run : read_logged_runs({file})) {
          for (const auto& [name, curve] : run.curves)
            CHECK((name == "train/loss" || name == "eval/loss"));
        }
      } catch (const Error& error) {
        CHECK(error.code() == "track.no-values");
      }
    }
  }
}

TEST_CASE("read_logged_runs: a path without values is an error") {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "a.json", "[]");
  write_file_atomically(folder.path() / "a.txt", "");
  CHECK(code_of([&] { read_logged_runs({folder.path()}); }) == "track.no-values");
  CHECK(code_of([&] { read_logged_runs({folder.path() / "missing"}); }) == "io.not-found");
  CHECK(code_of([&] { read_logged_runs({folder.path() / "a.json"}); }) == "track.log-file");
  CHECK(code_of([&] { read_logged_runs({folder.path() / "a.txt"}); }) == "track.log-file");
}

TEST_CASE("plot_page: it holds the points, and a name cannot end its script") {
  const std::string page =
      plot_page({{.name = "</script>", .curves = {{"train/loss", {{0, 0.5}, {10, std::nan("")}}}}}},
                {.smoothing = 0.5, .log_scale = true});
  CHECK(page.find(R"("train/loss":[[0,0.5],[10,null]])") != std::string::npos);
  CHECK(page.find(R"("smoothing":0.5,"log_scale":true)") != std::string::npos);
  CHECK(page.find("</script>\"") == std::string::npos);
}

}  // namespace logged_runs_test
