#include "process/backend/nccl.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

using namespace hasten;

TEST_CASE("nccl: what cannot be loaded is told, and nothing is made of it") {
  const std::string missing = missing_nccl_reason();
  if (missing.empty()) return;  // a machine with CUDA: tests/device tries it
  CHECK(missing.find("lib") != std::string::npos);
  const NcclSettings settings{.store = c10::make_intrusive<c10d::HashStore>(),
                              .rank = 0,
                              .size = 1,
                              .device = at::Device(at::kCUDA, 0),
                              .timeout = std::chrono::seconds(1)};
  CHECK_THROWS_AS(nccl_backend(settings), c10::Error);
}
