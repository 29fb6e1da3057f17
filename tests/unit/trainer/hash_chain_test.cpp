// The hash chains of the Trainer's runs: a resumed run continues them, and a changed bit changes
// them.
#include "hasten/checkpoint/hash_chain.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_hash_chain_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

// Twelve steps of two micro-batches, with a hash every second step and a checkpoint every third.
TrainingArguments twelve_steps(const fs::path& folder) {
  TrainingArguments args = twenty_steps(folder);
  args.max_steps = 12;
  args.gradient_accumulation_steps = 2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 3;
  args.hash_chain_steps = 2;
  return args;
}

// Returns the log.
std::string train(const TrainingArguments& args, const ColumnDataset& data = rows(20)) {
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(data),
                   .log_sink = [&](std::string_view line) { log += line; }});
  trainer.train();
  return log;
}

// Trains until an exception ends the run after this step.
void train_until(const TrainingArguments& args, std::int64_t step) {
  struct EndingCallback : TrainerCallback {
    explicit EndingCallback(std::int64_t step) : last(step) {}
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      if (event.state.global_step == last) throw std::domain_error("the run ends here");
    }
    std::int64_t last;
  };
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .callbacks = {std::make_shared<EndingCallback>(step)},
                   .log_sink = [](std::string_view) {}});
  CHECK_THROWS_AS(trainer.train(), std::domain_error);
}

// Returns the steps and the losses in metrics.jsonl.
std::vector<std::pair<int, double>> logged_losses(const fs::path& logs) {
  std::vector<std::pair<int, double>> losses;
  for (const std::string& line : split(read_file(logs / "metrics.jsonl"), '\n')) {
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line);
    if (json.contains("train/loss"))
      losses.emplace_back(json.at("step").get<int>(), json.at("train/loss").get<double>());
  }
  return losses;
}

fs::path checkpoint(const fs::path& run, std::int64_t step) {
  return run / str("checkpoint-", step);
}

std::string chain_text(const fs::path& run) { return read_file(run / kHashChainFile); }

// Flips the lowest bit of the first value of a tensor in a checkpoint, and makes it a valid
// checkpoint again.
void tamper(const fs::path& folder, const std::string& file, const std::string& name) {
  TensorDict tensors;
  for (const auto& [key, tensor] : load_safetensors(folder / file)) tensors[key] = tensor.clone();
  static_cast<std::int32_t*>(tensors.at(name).mutable_data_ptr())[0] ^= 1;
  save_safetensors(folder / file, tensors);
  write_manifest(folder);
}

// No file may grow to more than 100 bytes above the size of the chain, from the end of one step to
// the end of another.
class FullDisk : public TrainerCallback {
 public:
  FullDisk(fs::path chain, std::int64_t from, std::int64_t to)
      : chain_(std::move(chain)), from_(from), to_(to) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() override {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == from_) {
      const rlimit small{fs::file_size(chain_) + 100, before_.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    if (event.state.global_step == to_) setrlimit(RLIMIT_FSIZE, &before_);
  }

 private:
  fs::path chain_;
  std::int64_t from_, to_;
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

// Trains with a full disk and returns the log.
std::string train_with_full_disk(const TrainingArguments& args, std::int64_t from,
                                 std::int64_t to) {
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .callbacks = {std::make_shared<FullDisk>(
                       fs::path(args.output_dir) / kHashChainFile, from, to)},
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().global_step == 12);
  return log;
}

}  // namespace

TEST_CASE("hash chain: a run writes a link every k steps, the same ones each time") {
  const Folder a, b;
  train(twelve_steps(a.path));
  train(twelve_steps(b.path));
  const HashChain chain = read_hash_chain(a.path / kHashChainFile);
  REQUIRE(chain.size() == 6);
  CHECK(chain.front().previous == first_hash());
  for (std::size_t i = 0; i < chain.size(); ++i)
    CHECK(chain[i].step == 2 * static_cast<std::int64_t>(i + 1));
  CHECK(chain[0].weights.size() == new_model()->parameters().size());
  CHECK(chain[0].optimizer.size() == 3 * chain[0].weights.size());
  CHECK(chain_text(a.path) == chain_text(b.path));
}

TEST_CASE("hash chain: a resumed run continues it to the byte, also from another folder") {
  const Folder a, b;
  train(twelve_steps(a.path));
  const std::string whole = chain_text(a.path);
  // Step 3 is between two links. A killed process has left half a line.
  std::ofstream(a.path / kHashChainFile, std::ios::app | std::ios::binary) << "{\"hash\":\"0";
  TrainingArguments args = twelve_steps(a.path);
  args.resume_from_checkpoint = checkpoint(a.path, 3).string();
  args.save_strategy = SaveStrategy::no;
  train(args);
  CHECK(chain_text(a.path) == whole);
  args.output_dir = b.path.string();
  train(args);
  CHECK(whole.ends_with(chain_text(b.path)));
  CHECK(read_hash_chain(b.path / kHashChainFile).front().step == 4);
  CHECK(compare_runs(a.path, b.path).links == 5);
}

TEST_CASE("hash chain: a run may continue a later checkpoint after an earlier one") {
  const Folder a, b;
  const auto args_in = [](const fs::path& folder) {
    TrainingArguments args = twelve_steps(folder);
    args.hash_chain_steps = 1;
    args.async_save = false;
    args.report_to = {"jsonl"};
    args.logging_dir = (folder / "logs").string();
    return args;
  };
  train(args_in(a.path));
  TrainingArguments args = args_in(b.path);
  train_until(args, 8);
  REQUIRE(fs::exists(checkpoint(b.path, 6)));
  // This run ends before its first save, so it must change nothing.
  args.resume_from_checkpoint = checkpoint(b.path, 3).string();
  train_until(args, 5);
  CHECK(read_hash_chain(b.path / kHashChainFile).back().step == 5);
  REQUIRE(fs::exists(checkpoint(b.path, 6)));
  args.resume_from_checkpoint = "true";
  const std::string log = train(args);
  CHECK(contains(log, "resuming from " + checkpoint(b.path, 6).string()));
  CHECK_FALSE(contains(log, "begins again"));
  CHECK(chain_text(b.path) == chain_text(a.path));
  CHECK(read_hash_chain(b.path / kHashChainFile).size() == 12);
  CHECK(logged_losses(b.path / "logs").size() == 12);
  CHECK(logged_losses(b.path / "logs") == logged_losses(a.path / "logs"));

  // The links of the steps that follow go to the file of abandoned links once.
  const fs::path abandoned = b.path / "abandoned-hash_chain.jsonl";
  CHECK(split(read_file(abandoned), '\n').size() == 5 + 1);  // steps 4 to 8
  // A run that begins in the folder has no links of another one.
  args.resume_from_checkpoint = "";
  args.overwrite_output_dir = true;
  train(args);
  CHECK(chain_text(b.path) == chain_text(a.path));
  CHECK_FALSE(fs::exists(abandoned));
}

TEST_CASE("hash chain: a run with a full disk continues, and writes the links later") {
  const Folder whole_run;
  TrainingArguments args = twelve_steps(whole_run.path);
  args.save_strategy = SaveStrategy::no;
  train(args);
  const std::string whole = chain_text(whole_run.path);
  // There is space again for the link of step 10, only at the end of the run, and never.
  for (const std::int64_t space_at : {8, 12, 13}) {
    CAPTURE(space_at);
    const Folder folder;
    args.output_dir = folder.path.string();
    const std::string log = train_with_full_disk(args, 4, space_at);
    const fs::path file = folder.path / kHashChainFile;
    const std::string warning = "the hash chain was not written at step ";
    CHECK(contains(log, warning + "6: "));
    CHECK(contains(log, " bytes to " + file.string()));
    CHECK(contains(log, warning + "10: ") == (space_at > 8));
    if (space_at <= 12) CHECK(chain_text(folder.path) == whole);
    CHECK(whole.starts_with(chain_text(folder.path)));
    CHECK(read_hash_chain(file).size() == (space_at <= 12 ? 6U : 2U));
  }
}

TEST_CASE("hash chain: a line that cannot be written is reported with the reason") {
  struct FullFile : TrainerCallback {
    explicit FullFile(fs::path file) : file(std::move(file)) {}
    void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
      if (event.state.global_step != 3) return;
      fs::remove(file);
      fs::create_symlink("/dev/full", file);
    }
    fs::path file;
  };
  const Folder folder;
  TrainingArguments args = twelve_steps(folder.path);
  args.save_strategy = SaveStrategy::no;
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(20)),
                   .callbacks = {std::make_shared<FullFile>(folder.path / kHashChainFile)},
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().global_step == 12);
  CHECK(contains(log, "the hash chain was not written at step 4: "));
  CHECK(contains(log, "got No space left on device. Hint: the disk is full: free some space"));
}

TEST_CASE("hash chain: a resumed run begins the file again if links before it are missing") {
  const Folder folder;
  train(twelve_steps(folder.path));
  const std::string whole = chain_text(folder.path);
  write_file_atomically(folder.path / kHashChainFile, whole.substr(0, whole.find('\n') + 1));
  TrainingArguments args = twelve_steps(folder.path);
  args.resume_from_checkpoint = checkpoint(folder.path, 6).string();
  args.save_strategy = SaveStrategy::no;
  CHECK(contains(train(args), "hash chain in " + args.output_dir + " begins again after step 6"));
  CHECK(whole.ends_with(chain_text(folder.path)));
  CHECK(read_hash_chain(folder.path / kHashChainFile).front().step == 8);
}

TEST_CASE("hash chain: a damaged file does not end a resumed run, and is set aside") {
  const Folder folder;
  train(twelve_steps(folder.path));
  const fs::path file = folder.path / kHashChainFile;
  const std::string whole = chain_text(folder.path);
  std::string damaged = whole;
  damaged[damaged.find('\n') + 20] ^= 1;  // in the hash of the second line
  TrainingArguments args = twelve_steps(folder.path);
  args.resume_from_checkpoint = checkpoint(folder.path, 6).string();
  args.save_strategy = SaveStrategy::no;
  for (const char* const name : {"hash_chain.jsonl.damaged", "hash_chain.jsonl.damaged.2"}) {
    write_file_atomically(file, damaged);
    const std::string log = train(args);
    CHECK_MESSAGE(contains(log, str("the hash chain ", file.string(),
                                    " cannot be used and has been renamed to ", name, "; ",
                                    file.string(), ", line 2: got ")),
                  log);
    CHECK(contains(log, "begins again after step 6"));
    CHECK(read_file(folder.path / name) == damaged);
    // The checkpoint names the line before, so the new lines are those of the whole run.
    CHECK(whole.ends_with(chain_text(folder.path)));
    CHECK(read_hash_chain(file).front().step == 8);
  }
}

TEST_CASE("hash chain: one changed bit of a checkpoint, or of the data, is found and named") {
  const Folder a;
  train(twelve_steps(a.path));
  const auto repeated = [&](const ColumnDataset& data) {
    const Folder again;
    TrainingArguments args = twelve_steps(again.path);
    args.resume_from_checkpoint = checkpoint(a.path, 6).string();
    args.save_strategy = SaveStrategy::no;
    train(args, data);
    return compare_runs(a.path, again.path);
  };
  CHECK(!repeated(rows(20)).difference);

  TensorDict columns = rows(20).columns();
  columns["attention_mask"] = columns.at("attention_mask").clone();
  columns.at("attention_mask").select(1, 11).fill_(0);
  const RunComparison other_rows = repeated(ColumnDataset(columns));
  REQUIRE(other_rows.difference);
  CHECK(other_rows.difference->step == 8);
  CHECK(other_rows.difference->part == "the rows since the link before");

  const std::string name = "classifier.weight";
  tamper(checkpoint(a.path, 6), "model.safetensors", name);
  const RunComparison other_weights = repeated(rows(20));
  REQUIRE(other_weights.difference);
  CHECK(other_weights.difference->step == 8);
  CHECK(other_weights.difference->part.find("rows") == std::string::npos);
}

}  // namespace trainer_hash_chain_test
