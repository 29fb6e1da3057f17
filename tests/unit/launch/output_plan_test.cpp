// The destinations of ranks' output: shown, in files, or both.
#include "launch/output_plan.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace launch_output_plan_test {

using namespace hasten;

namespace {

// Returns a text such as "output shown errors in rank_5/stderr.log".
std::string text_of(const LaunchOptions& options, std::size_t local_rank) {
  const Round round{.attempt = 1, .first_rank = 4, .world_size = 8};
  const OutputPlan plan = output_plan(options, round, local_rank);
  CHECK(plan.prefix == str("[", 4 + local_rank, "] "));
  std::string text;
  for (const int stream : {0, 1}) {
    text += stream == 0 ? "output" : " errors";
    if (plan.shown[stream]) text += " shown";
    const std::string file = plan.file[stream].string();
    if (!file.empty()) text += " in " + file.substr(file.find("attempt_1/") + 10);
  }
  return text;
}

}  // namespace

TEST_CASE("output: it is shown by default, and a log folder adds one file per rank") {
  CHECK(text_of({}, 1) == "output shown errors shown");
  CHECK(text_of({.local_ranks_filter = "0"}, 1) == "output errors");
  CHECK(text_of({.log_dir = "l"}, 1) == "output shown in rank_5.log errors shown in rank_5.log");
  CHECK(output_plan({}, {.world_size = 1}, 0).prefix.empty());
}

TEST_CASE("output: tee shows and saves output, redirects only saves it") {
  const auto text_with = [](const char* tee, const char* redirects, std::size_t local = 1) {
    return text_of({.log_dir = "l", .tee = tee, .redirects = redirects}, local);
  };
  const std::string out = " in rank_5/stdout.log", err = " in rank_5/stderr.log";
  CHECK(text_with("3", "") == "output shown" + out + " errors shown" + err);
  CHECK(text_with("1", "") == "output shown" + out + " errors shown");
  CHECK(text_with("2", "") == "output shown errors shown" + err);
  CHECK(text_with("", "3") == "output" + out + " errors" + err);
  CHECK(text_with("", "1") == "output" + out + " errors shown");
  CHECK(text_with("0", "0") == "output shown errors shown");
  // A stream that both options name is shown, as in torchrun.
  CHECK(text_with("2", "3") == "output" + out + " errors shown" + err);
  CHECK(text_with("0:3,1:1", "") == "output shown" + out + " errors shown");
  CHECK(text_with("0:3", "1:2") == "output shown errors" + err);
  CHECK(text_with("0:3", "1:2", 2) == "output shown errors shown");
  CHECK(text_of({.log_dir = "l", .tee = "3", .local_ranks_filter = "0"}, 1) ==
        "output" + out + " errors" + err);
}

namespace {

// Waits until a log, which a thread writes, has `size` bytes. Returns the content of the log.
std::string log_text(const std::filesystem::path& file, std::size_t size) {
  std::string text;
  for (int i = 0; i < 2000 && text.size() < size; ++i) {
    text = read_file(file.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return text;
}

}  // namespace

TEST_CASE("output: a file has its stream, and the last lines are from both streams") {
  const TemporaryDirectory folder;
  OutputPlan plan{.prefix = "", .shown = {false, false}, .file = {}};
  plan.file[0] = folder.path() / "a/b/stdout.log";
  plan.file[1] = folder.path() / "a/b/stderr.log";
  Console console;
  RankOutput output(plan, console);
  output.append("one\ntw", 1);
  output.append("wrong\n", 2);
  output.append("o\nthree", 1);
  output.finish();
  CHECK(log_text(plan.file[0], 14) == "one\ntwo\nthree\n");
  CHECK(log_text(plan.file[1], 6) == "wrong\n");
  CHECK(output.saved_path() == folder.path() / "a/b");
  CHECK(output.last_lines().size() == 4);

  plan.file[0] = plan.file[1] = folder.path() / "a/together.log";
  RankOutput together(plan, console);
  together.append("one\n", 1);
  together.append("two\n", 2);
  together.finish();
  CHECK(log_text(plan.file[0], 8) == "one\ntwo\n");
  CHECK(together.saved_path() == plan.file[0]);
  plan.file[0] = plan.file[1] = folder.path() / "a/b/stderr.log/impossible";
  CHECK_THROWS_AS(RankOutput(plan, console), IoError);
  plan.log_error_policy = LogErrorPolicy::report;
  RankOutput without(plan, console);
  without.append("one\n", 1);
  CHECK(without.last_lines().size() == 1);
  CHECK_FALSE(without.must_wait(1));
  CHECK(without.saved_path().empty());
}

TEST_CASE("output: a log continues after an earlier job's, and keeps whole lines") {
  const TemporaryDirectory folder;
  Console console;
  OutputPlan plan{.prefix = "", .shown = {false, false}, .file = {}};
  plan.file[0] = folder.path() / "log";
  const std::string text("a\0b\n", 4);
  {
    RankOutput output(plan, console);
    output.append(text, 1);
    CHECK(log_text(plan.file[0], 4) == text);  // before the output is closed
    CHECK(output.last_lines().back() == std::string("a\0b", 3));
  }
  RankOutput output(plan, console);
  output.append("later\n", 1);
  const std::size_t line =
      std::string("--- hasten launch: another job begins, 2026-01-01 00:00:00 UTC ---\n").size();
  const std::string all = log_text(plan.file[0], text.size() + line + 6);
  CHECK(starts_with(all, text + "--- hasten launch: another job begins, "));
  CHECK(all.ends_with(" UTC ---\nlater\n"));
}

}  // namespace launch_output_plan_test
