#include "device/cuda/nccl.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace device_nccl_test {

using namespace hasten;

TEST_CASE("nccl: a missing library is reported, and no backend is created") {
  const std::string missing = nccl().missing_reason();
  if (missing.empty()) return;  // this machine has CUDA
  CHECK(missing.find("lib") != std::string::npos);
  const CollectiveSettings settings{.store = c10::make_intrusive<c10d::HashStore>(),
                                    .rank = 0,
                                    .size = 1,
                                    .device = at::Device(at::kCUDA, 0),
                                    .timeout = std::chrono::seconds(1)};
  CHECK_THROWS_AS(nccl().make(settings), c10::Error);
}

}  // namespace device_nccl_test
