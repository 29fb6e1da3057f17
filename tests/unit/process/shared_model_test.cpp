// On small hosts with many chips, a model that each process creates is in memory once per process.
// A model that is created before notebook_launcher is in memory once.
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/process/group.h"
#include "hasten/process/notebook_launcher.h"

namespace process_shared_model_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kWidth = 7168;
constexpr std::int64_t kRanks = 4;
constexpr double kModel = (kWidth * kWidth + kWidth) * 4 / 1048576.0;  // MiB: 196

// MiB of the process; each page is divided by the number of processes that share it.
double proportional_memory(const std::string& process) {
  std::ifstream file("/proc/" + process + "/smaps_rollup");
  double kib = 0;
  for (std::string word; file >> word;) {
    if (word == "Pss:") file >> kib;
  }
  return kib / 1024;
}

// The memory of all ranks and their parent process, after all have used their model.
double memory_of_all(const std::function<torch::nn::Linear()>& model_of_rank) {
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  notebook_launcher(
      [&] {
        const Group group = Group::form(this_worker());
        torch::nn::Linear model = model_of_rank();
        const torch::NoGradGuard no_grad;
        const float sum = model->forward(torch::ones({1, kWidth})).sum().item<float>();
        group.barrier();
        std::ofstream(folder / std::to_string(group.rank()))
            << proportional_memory("self") << " " << std::isfinite(sum);
        if (group.rank() == 0)
          std::ofstream(folder / "parent") << proportional_memory(std::to_string(getppid()));
        group.barrier();  // so that no rank's share grows because another rank ends
      },
      {.num_processes = kRanks, .use_cpu = true, .num_cpu_threads_per_process = 1});
  double all = 0, one = 0;
  std::ifstream(folder / "parent") >> all;
  CHECK(all > 0);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    bool finite = false;
    std::ifstream(folder / std::to_string(rank)) >> one >> finite;
    CHECK(one > 0);
    CHECK(finite);
    all += one;
  }
  return all;
}

torch::nn::Linear new_layer() { return torch::nn::Linear(kWidth, kWidth); }

}  // namespace

TEST_CASE("notebook_launcher: a model is in memory once if it is created before") {
  const double own = memory_of_all(new_layer);
  double shared = 0;
  {
    const torch::nn::Linear once = new_layer();
    shared = memory_of_all([&] { return once; });
  }
  MESSAGE(kRanks, " processes and a model of ", fixed(kModel, 0), " MiB: ", fixed(shared, 0),
          " MiB in total if it is created once, ", fixed(own, 0), " if each process creates it");
  const double copies = (own - shared) / kModel;
  // A process that creates a model uses up to 8 MiB more of LibTorch, as measured on several CPUs.
  CHECK(copies > kRanks - 1 - 0.15);
  CHECK(copies < kRanks - 1 + 0.3);
}

}  // namespace process_shared_model_test
