// Tests how a run that continues at its last step finds out what its end has left to do.
#include "trainer/final_results.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "hasten/base/files.h"
#include "hasten/trainer/trainer.h"
#include "unit/change_byte.h"
#include "unit/trainer/tiny.h"

namespace trainer_final_results_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

TEST_CASE("final results: metrics are there once they are merged with those of all splits") {
  const Folder folder;
  make_directories(folder.path);
  CHECK(!has_metrics(folder.path, "eval"));
  write_file_atomically(folder.path / "eval_results.json", R"({"eval_runtime": 1.5})");
  CHECK(!has_metrics(folder.path, "eval"));
  for (const char* const all : {"", "[1]", R"({"train_runtime": 2.5, "eval_loss": 0.5})"}) {
    CAPTURE(all);
    write_file_atomically(folder.path / "all_results.json", all);
    CHECK(!has_metrics(folder.path, "eval"));
  }
  write_file_atomically(folder.path / "all_results.json",
                        R"({"train_runtime": 2.5, "eval_runtime": 1.5})");
  CHECK(has_metrics(folder.path, "eval"));
  CHECK(!has_metrics(folder.path, "train"));
  fs::remove(folder.path / "all_results.json");
  make_directories(folder.path / "all_results.json");
  CHECK(!has_metrics(folder.path, "eval"));
}

TEST_CASE("final results: the final model has the bytes of the last checkpoint, and of no other") {
  for (const bool is_asynchronous : {false, true}) {
    CAPTURE(is_asynchronous);
    const Folder folder;
    TrainingArguments args = short_run(folder.path);
    args.max_steps = 2;
    args.learning_rate = 0.1;
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 1;
    args.async_save = is_asynchronous;
    Trainer trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))});
    trainer.train();
    CHECK(!has_weights_of(folder.path, folder.path / "checkpoint-2"));
    trainer.save_model();
    CHECK(has_weights_of(folder.path, folder.path / "checkpoint-2"));
    CHECK(!has_weights_of(folder.path, folder.path / "checkpoint-1"));
  }
}

TEST_CASE(
    "final results: a model that is damaged or mixed with another one is not that of the run") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 1;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 1;
  Trainer trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(4))});
  trainer.train();
  trainer.save_model();
  const fs::path checkpoint = folder.path / "checkpoint-1";
  REQUIRE(has_weights_of(folder.path, checkpoint));
  const fs::path shard = folder.path / "model-00001-of-00002.safetensors";
  write_file_atomically(shard, "");
  CHECK(!has_weights_of(folder.path, checkpoint));
  fs::remove(shard);
  REQUIRE(has_weights_of(folder.path, checkpoint));
  change_byte_unnoticed(folder.path / "model.safetensors", 5000);
  CHECK(!has_weights_of(folder.path, checkpoint));
  trainer.save_model();
  REQUIRE(has_weights_of(folder.path, checkpoint));
  fs::remove(checkpoint / "hasten_manifest.json");
  CHECK(!has_weights_of(folder.path, checkpoint));
}

}  // namespace trainer_final_results_test
