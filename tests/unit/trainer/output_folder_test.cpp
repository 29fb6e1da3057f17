// Tests which folders hasten train refuses before it begins, and the results that it deletes.
#include "trainer/output_folder.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "unit/code_of.h"
#include "unit/scoped_environment.h"
#include "unit/trainer/tiny.h"

namespace trainer_output_folder_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

// A folder with the given files, and the arguments of a run that writes to it.
struct UsedFolder : Folder {
  explicit UsedFolder(const std::vector<std::string>& files) {
    make_directories(path);
    for (const std::string& name : files) {
      make_directories((path / name).parent_path());
      write_file_atomically(path / name, "{}");
    }
    args.output_dir = path.string();
  }
  std::string code_of_model_check() const {
    return code_of([this] { check_no_saved_model(args); });
  }
  std::string code_of_input_check(const fs::path& input) const {
    return code_of([&] { check_inputs_kept(args, {"", input.string()}); });
  }
  TrainingArguments args;
};

}  // namespace

TEST_CASE("output folder: saved weights are not replaced without a question") {
  for (const char* const name :
       {"model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"}) {
    CAPTURE(name);
    UsedFolder folder({name});
    CHECK(folder.code_of_model_check() == "trainer.output-in-use");
    folder.args.overwrite_output_dir = true;
    CHECK(folder.code_of_model_check() == "none");
    folder.args.overwrite_output_dir = false;
    folder.args.resume_from_checkpoint = "elsewhere/checkpoint-1";
    CHECK(folder.code_of_model_check() == "none");
  }
  CHECK(UsedFolder({"config.json", "notes.txt"}).code_of_model_check() == "none");
  UsedFolder missing({});
  missing.args.output_dir = (missing.path / "missing").string();
  CHECK(missing.code_of_model_check() == "none");
}

TEST_CASE("output folder: a job that is started again may replace its own model, and no other") {
  const UsedFolder own({"model.safetensors"}), other({"model.safetensors"});
  write_file_atomically(own.path / ".hasten-job", "nightly");
  {
    const ScopedTorchrunVariables job("nightly", "1");
    CHECK(own.code_of_model_check() == "none");
    CHECK(other.code_of_model_check() == "trainer.output-in-use");
  }
  // A new job of the same name is refused, and so is its second attempt.
  for (const char* const restarts : {"0", "1"}) {
    const ScopedTorchrunVariables job("nightly", restarts);
    CHECK(own.code_of_model_check() == "trainer.output-in-use");
  }
  // A job that continues whatever run is in the folder does not replace a model that has none.
  const ScopedVariable resume("HASTEN_RESUME_RUNS", "1");
  CHECK(other.code_of_model_check() == "trainer.output-in-use");
  write_file_atomically(own.path / ".hasten-job", "nightly");
  CHECK(own.code_of_model_check() == "none");
}

TEST_CASE("output folder: the model from which a run starts is not replaced") {
  UsedFolder folder({"config.json", "trained.pt2", "model.safetensors", "rows.safetensors"});
  folder.args.overwrite_output_dir = true;
  const fs::path link = folder.directory.path() / "link";
  fs::create_directory_symlink(folder.path, link);
  for (const fs::path& input : {folder.path, link, folder.path / "config.json",
                                link / "trained.pt2", folder.path / "model.safetensors"}) {
    CAPTURE(input.string());
    CHECK(folder.code_of_input_check(input) == "trainer.output-in-use");
  }
  CHECK(folder.code_of_input_check(folder.path / "rows.safetensors") == "none");
  CHECK(folder.code_of_input_check(folder.directory.path()) == "none");
  CHECK(folder.code_of_input_check("missing") == "none");
}

TEST_CASE("output folder: a run does not start from a checkpoint that it deletes") {
  UsedFolder folder({"checkpoint-7/model.safetensors", "abandoned-checkpoint-9/model.safetensors",
                     "checkpoints/model.safetensors"});
  const fs::path link = folder.directory.path() / "link";
  fs::create_directory_symlink(folder.path / "checkpoint-7", link);
  folder.args.overwrite_output_dir = true;
  for (const fs::path& input :
       {folder.path / "checkpoint-7", folder.path / "checkpoint-7/", link,
        link / "model.safetensors", folder.path / "abandoned-checkpoint-9"}) {
    CAPTURE(input.string());
    CHECK(folder.code_of_input_check(input) == "trainer.output-in-use");
  }
  CHECK(folder.code_of_input_check(folder.path / "checkpoints") == "none");
  CHECK(folder.code_of_input_check(folder.directory.path() / "checkpoint-7") == "none");
  folder.args.overwrite_output_dir = false;
  CHECK(folder.code_of_input_check(link) == "none");  // an existing run is refused anyway
}

TEST_CASE("output folder: only the results of hasten are deleted, and a failure is reported") {
  const UsedFolder folder({"train_results.json", "eval_results.json", "test_results.json",
                           "predictions.safetensors", "my_results.json", "model.safetensors"});
  make_directories(folder.path / "all_results.json" / "inside");  // cannot be deleted as a file
  std::vector<std::string> reports;
  remove_old_results(folder.args.output_dir,
                     [&](const std::string& text) { reports.push_back(text); });
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].find("all_results.json is of an earlier run") != std::string::npos);
  std::vector<std::string> left;
  for (const char* const name : {"train_results.json", "eval_results.json", "test_results.json",
                                 "predictions.safetensors", "my_results.json", "model.safetensors"})
    if (fs::exists(folder.path / name)) left.emplace_back(name);
  CHECK(left == std::vector<std::string>{"my_results.json", "model.safetensors"});
}

}  // namespace trainer_output_folder_test
