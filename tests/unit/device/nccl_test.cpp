#include "device/cuda/nccl.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

using namespace hasten;

TEST_CASE("nccl: what cannot be loaded is told, and nothing is made of it") {
  const std::string missing = nccl().missing_reason();
  if (missing.empty()) return;  // a machine with CUDA: tests/device tries it
  CHECK(missing.find("lib") != std::string::npos);
  const CollectiveSettings settings{.store = c10::make_intrusive<c10d::HashStore>(),
                                    .rank = 0,
                                    .size = 1,
                                    .device = at::Device(at::kCUDA, 0),
                                    .timeout = std::chrono::seconds(1)};
  CHECK_THROWS_AS(nccl().make(settings), c10::Error);
}
