#include "prepare/compile_watch.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace prepare_compile_watch_test {

using namespace hasten;

namespace {

struct WatchedRun {
  std::int64_t programs = 0;
  std::vector<std::string> lines;
  std::int64_t waits = 0;
  CompileWatch watch{[this] { return programs; }, [this] { ++waits; },
                     Logger("hasten", LogLevel::warning, {}, Group::single(),
                            [this](std::string_view line) { lines.emplace_back(line); })};

  void batch(std::int64_t length, std::int64_t compiled) {
    watch.on_batch({at::zeros({8, length}, at::kLong)});
    programs += compiled;
  }
};

}  // namespace

TEST_CASE("compile watch: only the first two batches of known shapes may compile") {
  WatchedRun run;
  run.batch(16, 170);
  run.batch(16, 3);
  for (int i = 0; i < 20; ++i) run.batch(16, i == 7 ? 40 : 0);  // the first evaluation
  CHECK(run.lines.empty());
  CHECK(run.waits == 3);  // only after batches that compile, so that the host can run ahead
}

TEST_CASE("compile watch: new shapes are named, and after several only their change is reported") {
  WatchedRun run;
  for (int i = 0; i < 3; ++i) run.batch(16, i == 0 ? 170 : 0);
  run.batch(77, 120);
  run.batch(16, 0);
  REQUIRE(run.lines.size() == 1);
  CHECK(run.lines[0].find("[8, 77]: 120 programs were compiled") != std::string::npos);
  for (std::int64_t length = 78; length < 100; ++length) run.batch(length, 120);
  CHECK(run.lines.size() == 4);
  CHECK(run.lines.back().find("keep changing") != std::string::npos);
}

TEST_CASE("compile watch: programs in each batch of a known shape are reported once") {
  WatchedRun run;
  for (int i = 0; i < 30; ++i) run.batch(16, 1);
  REQUIRE(run.lines.size() == 1);
  CHECK(run.lines[0].find("although their shapes are not new") != std::string::npos);
}

}  // namespace prepare_compile_watch_test
