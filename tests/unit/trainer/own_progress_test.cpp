// Tests which bars and lines a Trainer shows without a callback for them.
#include "trainer/own_progress.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hasten/base/files.h"
#include "hasten/trainer/progress_callback.h"
#include "hasten/trainer/trainer.h"
#include "unit/trainer/tiny.h"

namespace trainer_own_progress_test {

using namespace hasten;
using namespace hasten::tiny_runs;

namespace {

// Returns what f writes to standard error, which is a file meanwhile.
std::string error_output_of(const std::filesystem::path& file, const std::function<void()>& f) {
  std::fflush(stderr);
  const int saved = dup(STDERR_FILENO);
  const int to = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  REQUIRE(to >= 0);
  dup2(to, STDERR_FILENO);
  close(to);
  f();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  return read_file(file);
}

std::string shown(std::optional<bool> disable_tqdm, LogLevel level = LogLevel::passive,
                  bool adds_callback = false) {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 2;
  args.disable_tqdm = disable_tqdm;
  args.log_level = level;
  return error_output_of(folder.directory.path() / "shown", [&] {
    Trainer trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))});
    if (adds_callback) trainer.add_callback(std::make_shared<ProgressCallback>());
    trainer.train();
  });
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

}  // namespace

TEST_CASE("own progress: disable_tqdm false shows the logged lines of a run") {
  const std::string text = shown(false);
  CHECK(count(text, "'loss': ") == 2);
  CHECK(text.find("Training") != text.npos);
}

TEST_CASE("own progress: without a terminal nothing is shown unless disable_tqdm is false") {
  CHECK(count(shown(std::nullopt), "'loss': ") == 0);
  CHECK(count(shown(true), "'loss': ") == 0);
}

TEST_CASE("own progress: log_level error leaves out the lines") {
  CHECK(count(shown(false, LogLevel::error), "'loss': ") == 0);
}

TEST_CASE("own progress: a callback that shows the run replaces it") {
  CHECK(count(shown(false, LogLevel::passive, true), "'loss': ") == 2);
  CHECK(count(shown(true, LogLevel::passive, true), "'loss': ") == 2);
}

}  // namespace trainer_own_progress_test
