// Measures the training step of each exported model in a folder that python/exported_step.py has
// written. Prints one JSON line with the median milliseconds of each.
//
//   exported_step FOLDER STEPS
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"

namespace {

using Clock = std::chrono::steady_clock;

double median_step_ms(const std::filesystem::path& file, int steps) {
  const auto model = hasten::load_exported(file);
  const hasten::TensorDict inputs =
      hasten::load_safetensors(std::filesystem::path(file).replace_extension(".safetensors"));
  torch::optim::SGD optimizer(model->parameters(), 1e-3);
  std::vector<double> times;
  const int warm_up = std::max(1, steps / 5);
  for (int step = 0; step < warm_up + steps; ++step) {
    const auto begin = Clock::now();
    optimizer.zero_grad();
    model->forward(inputs).at("loss").backward();
    optimizer.step();
    if (step >= warm_up)
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[static_cast<std::size_t>(steps / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: exported_step FOLDER STEPS\n");
    return 2;
  }
  at::set_num_threads(1);
  nlohmann::json medians;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.path().extension() == ".pt2")
      medians[entry.path().stem().string()] = median_step_ms(entry.path(), std::atoi(argv[2]));
  std::printf("%s\n", medians.dump().c_str());
}
