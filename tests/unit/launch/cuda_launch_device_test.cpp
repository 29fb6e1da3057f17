// The GPUs of the processes that a launch starts.
#include "launch/cuda_launch_device.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "machine/installed_gpus.h"
#include "unit/scoped_environment.h"

namespace launch_cuda_launch_device_test {

using namespace hasten;
using Gpus = std::vector<int>;

TEST_CASE("GPUs of a launch: each process gets the visible GPU of its local rank") {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(gpus_of_processes({}, 4, 4) == Gpus{0, 1, 2, 3});
  CHECK(gpus_of_processes({}, 2, 3) == Gpus{0, 1, 0});
  CHECK(gpus_of_processes({.gpu_ids = "3,1"}, 4, 2) == Gpus{3, 1});
  CHECK(gpus_of_processes({.use_cpu = true}, 4, 2).empty());
  CHECK(gpus_of_processes({}, 0, 2).empty());
  const ScopedVariable some("CUDA_VISIBLE_DEVICES", "2,3");
  CHECK(gpus_of_processes({}, 4, 2) == Gpus{2, 3});
  const ScopedVariable named("CUDA_VISIBLE_DEVICES", "GPU-8932f937");
  CHECK(gpus_of_processes({}, 4, 1).empty());
  const ScopedVariable none("CUDA_VISIBLE_DEVICES", "");
  CHECK(gpus_of_processes({}, 4, 2).empty());
}

TEST_CASE("GPUs of a launch: gpu_ids counts the processes and is their variable") {
  const LaunchDevice& device = cuda_launch_device();
  CHECK(device.processes({.gpu_ids = "0,2,5"}) == 3);
  CHECK(device.processes({.use_cpu = true}) == std::nullopt);
  const auto variables = device.variables({.gpu_ids = "0,2"}, {.processes = 2});
  REQUIRE(variables.size() == 2);
  for (const VariableList& each : variables)
    CHECK(each == VariableList{{"CUDA_VISIBLE_DEVICES", "0,2"}});
  CHECK(device.variables({}, {.processes = 1}) == std::vector<VariableList>{{}});
  const ScopedVariable none("CUDA_VISIBLE_DEVICES", "");
  CHECK(device.processes({}) == std::nullopt);
}

}  // namespace launch_cuda_launch_device_test
