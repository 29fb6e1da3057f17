// save_state and load_state in two processes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_save_state_processes_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
namespace fs = std::filesystem;
namespace optim = torch::optim;
using namespace hasten::save_state_loop;

TEST_CASE("save_state: two processes continue bit for bit, each with its own random numbers") {
  for (const bool foreign : {false, true}) {
    CAPTURE(foreign);
    const TemporaryDirectory none, project, results;
    // A window has two micro-batches. The run stops once inside a window, and once after a step.
    const Loop loop{.foreign_loader = foreign,
                    .batch_size = 2,
                    .workers = foreign ? 0 : 1,
                    .stops_at_micro_batch = true,
                    .asynchronous = foreign};
    const auto in_two = [&](const fs::path& in, std::int64_t stop, const std::string& name) {
      debug_launcher([&] {
        const auto ended = train(loop, in, stop);
        if (!ended) return;
        // The ranks have the same weights, but each has its own mean and its own random numbers.
        torch::manual_seed(0);
        TensorDict all = ended->weights;
        all["drawn"] = ended->drawn;
        all["mean"] = at::scalar_tensor(ended->mean, at::kDouble);
        const char* rank = std::getenv("RANK");
        save_safetensors(results.path() / (name + rank + ".safetensors"), all);
      });
    };
    in_two(none.path(), -1, "straight");
    for (const std::int64_t stop : {5, 18}) {
      in_two(project.path(), stop, "");
      in_two(project.path(), -1, "resumed");
      for (const char* rank : {"0", "1"}) {
        const auto read = [&](const std::string& name) {
          return load_safetensors(results.path() / (name + rank + ".safetensors"));
        };
        const TensorDict straight = read("straight"), resumed = read("resumed");
        for (const auto& [name, tensor] : straight) {
          CAPTURE(name);
          if (name == "mean" && rank[0] == '1') continue;  // only the main process saves it
          CHECK(at::equal(tensor, resumed.at(name)));
        }
      }
      fs::remove_all(project.path() / "checkpoints");
    }
  }
}

TEST_CASE("save_state: an error in one process is an error in both, and writes nothing") {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    Accelerator accelerator({.cpu = true});
    Net net;
    auto [model] = accelerator.prepare(net);
    const bool is_main = accelerator.is_main_process();
    CheckpointHook hook = accelerator.register_save_state_pre_hook([&](const fs::path&) {
      if (!is_main) throw DataError("data.empty", {.what = "on purpose"});
    });
    require(code_of([&] { accelerator.save_state(folder.path() / "state"); }) == "data.empty",
            "both processes throw");
    require(!fs::exists(folder.path() / "state"), "nothing is written");
    hook.remove();
    accelerator.save_state(folder.path() / "state");
    accelerator.load_state(folder.path() / "state");
  });
  CHECK(fs::exists(folder.path() / "state" / kManifestFile));
}

}  // namespace prepare_save_state_processes_test
