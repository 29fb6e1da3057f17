// Damage to the newest checkpoint of a run is found before a tensor of it is used, and the run
// continues from the checkpoint before it.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "unit/memory_directory.h"

namespace checkpoint_damaged_checkpoints_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

// A run with checkpoints of steps 1 and 2.
class SavedRun {
 public:
  SavedRun() {
    const at::Tensor weight = at::linspace(-1, 1, 2048).requires_grad_();
    AdamW adamw(std::vector<at::Tensor>{weight});
    for (const std::int64_t step : {1, 2}) {
      adamw.zero_grad();
      weight.square().sum().backward();
      adamw.step();
      CheckpointSave save(folder_.path() / str(kCheckpointPrefix, step));
      save_safetensors(save.path() / "model.safetensors", {{"weight", weight.detach()}});
      save_training_state(save.path(), adamw, {{"weight", weight}},
                          {.scheduler_step = step,
                           .num_processes = 1,
                           .loader = {.seed = 3, .epoch = 0, .batch = step, .rows = 40}},
                          random_states(Group::single()));
      save.commit();
    }
    for (const auto& entry : fs::directory_iterator(newest()))
      bytes[entry.path().filename().string()] = read_file(entry.path());
  }

  fs::path previous() const { return folder_.path() / "checkpoint-1"; }
  fs::path newest() const { return folder_.path() / "checkpoint-2"; }

  void flip(const std::string& file, std::size_t byte, int bit) const {
    write_byte(file, byte, static_cast<char>(bytes.at(file)[byte] ^ (1 << bit)));
  }
  void restore(const std::string& file, std::size_t byte) const {
    write_byte(file, byte, bytes.at(file)[byte]);
  }
  void restore(const std::string& file) const {
    std::ofstream(newest() / file, std::ios::binary | std::ios::trunc) << bytes.at(file);
  }

  // Returns the checkpoint that the run continues from.
  fs::path recover() {
    reports.clear();
    return recover_last_checkpoint(folder_.path(),
                                   [&](const std::string& text) { reports.push_back(text); });
  }
  // Recovers from damage to this file, and then gives the damaged checkpoint its name again.
  // Returns an empty text if the damage is reported, the damaged checkpoint is renamed, and the
  // run continues from the one before it.
  std::string fault_of_recovery(const std::string& file) {
    const fs::path chosen = recover(), damaged = newest().string() + ".damaged";
    if (chosen != previous()) return "the run continues from " + chosen.string();
    if (fs::exists(newest()) || !fs::exists(damaged)) return "the checkpoint is not renamed";
    fs::rename(damaged, newest());
    const bool is_named =
        reports.size() == 1 && reports[0].find((newest() / file).string()) != std::string::npos;
    return is_named ? "" : "the reports are: " + join(reports, "; ");
  }

  // The names of the files of the newest checkpoint, with their contents.
  std::map<std::string, std::string> bytes;
  std::vector<std::string> reports;  // of the latest recovery

 private:
  void write_byte(const std::string& file, std::size_t byte, char value) const {
    std::fstream stream(newest() / file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(byte)).put(value);
  }

  test::MemoryDirectory folder_;
};

}  // namespace

TEST_CASE("damaged checkpoints: each of 10,000 flipped bits is found, and the one before is used") {
  constexpr std::uint64_t kSeed = 5;
  SavedRun run;
  std::vector<std::string> names;
  for (const auto& [name, content] : run.bytes) names.push_back(name);
  REQUIRE(names == std::vector<std::string>{kManifestFile, "model.safetensors",
                                            "optimizer.safetensors", "random_state.safetensors",
                                            "training_position.json"});
  std::mt19937_64 engine(kSeed);
  for (int i = 0; i < 10'000; ++i) {
    const std::string& name = names[engine() % names.size()];
    const std::size_t byte = engine() % run.bytes.at(name).size();
    const int bit = static_cast<int>(engine() % 8);
    run.flip(name, byte, bit);
    const std::string fault = run.fault_of_recovery(name);
    run.restore(name, byte);
    if (fault.empty()) continue;
    FAIL(str("seed ", kSeed, ", flip ", i, ", bit ", bit, " of byte ", byte, " of ", name, ": ",
             fault));
  }
  CHECK(run.recover() == run.newest());
  CHECK(run.reports.empty());
}

TEST_CASE("damaged checkpoints: a truncated file is found, and the run continues one before") {
  SavedRun run;
  for (const auto& [name, content] : run.bytes) {
    for (std::size_t size = 0; size < content.size(); size += 4096) {
      fs::resize_file(run.newest() / name, size);
      const std::string fault = run.fault_of_recovery(name);
      if (!fault.empty()) FAIL(str(size, " bytes of ", name, ": ", fault));
      run.restore(name);
    }
  }
  CHECK(run.bytes.at("optimizer.safetensors").size() > std::size_t{4 * 4096});
  CHECK(run.recover() == run.newest());
  // The checkpoint before has its own state.
  CHECK(load_training_position(run.newest()).scheduler_step == 2);
  CHECK(load_training_position(run.previous()).scheduler_step == 1);
}

TEST_CASE("damaged checkpoints: a pipe in the place of a file does not stop a run for ever") {
  SavedRun run;
  for (const auto& [name, content] : run.bytes) {
    CAPTURE(name);
    const fs::path file = run.newest() / name;
    fs::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    const std::string fault = run.fault_of_recovery(name);
    fs::remove(file);
    run.restore(name);
    CHECK(fault == "");
  }
  CHECK(run.recover() == run.newest());
}

}  // namespace checkpoint_damaged_checkpoints_test
