// Batches that are copied while the device computes (hasten/prepare/detail/to_device.h). On a GPU
// (tested::device()) the test checks that a copy does not wait for the computation before it, and
// that a computation waits for its batch. On the CPU only the numbers are checked. The test is in
// this folder because the kit for GPUs contains the program oracle_tests.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>
#include <vector>

#include "device.h"
#include "device/device.h"
#include "hasten/data/loader.h"
#include "hasten/prepare/detail/to_device.h"

namespace oracle_gpu_batches_test {

using namespace hasten;
using namespace std::chrono_literals;

namespace {

at::Tensor numbers(std::int64_t count) { return hasten::detail::pinned(at::randn({count})); }

// Submits work that keeps a GPU busy for about a tenth of a second for each round.
at::Tensor keep_busy(int rounds) {
  const std::int64_t size = tested::device().is_cpu() ? 8 : 4096;
  at::Tensor x = at::randn({size, size}, tested::device());
  const at::Tensor y = x / static_cast<double>(size);
  for (int i = 0; i < 30 * rounds; ++i) x = x.mm(y);
  return x;
}

}  // namespace

TEST_CASE("gpu batches: every computation gets the numbers of its own batch") {
  torch::manual_seed(3);
  std::vector<double> expected;
  std::vector<at::Tensor> sums;
  for (std::int64_t i = 0; i < 40; ++i) {
    // Batches of few sizes, so that the memory of one is used again for a later one.
    const at::Tensor host = numbers(100'000 + 50'000 * (i % 3));
    expected.push_back(host.to(at::kDouble).sum().item<double>());
    const at::Tensor batch = to_device(host, tested::device());
    if (i % 4 == 0) (void)keep_busy(1);
    sums.push_back(batch.to(at::kDouble).sum());
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    CHECK(sums[i].item<double>() == doctest::Approx(expected[i]));
}

TEST_CASE("gpu batches: a batch arrives while the device computes what was submitted before") {
  if (!device_of(tested::device()).traits().copies_in_background) {
    MESSAGE("needs a GPU");
    return;
  }
  const c10::impl::VirtualGuardImpl guard(tested::device().type());
  const at::Device device = guard.getDevice();
  const at::Tensor host = numbers(1 << 20);
  (void)to_device(host, device);  // makes the stream
  (void)keep_busy(1);             // and the workspaces
  synchronize(device);
  c10::Event computed(device.type());
  (void)keep_busy(20);
  computed.record(guard.getStream(device));
  const at::Tensor batch = to_device(host, device);
  std::this_thread::sleep_for(200ms);
  at::Tensor back;
  {
    // This stream does not wait for the computation, so it sees the numbers only if they have
    // arrived.
    const c10::StreamGuard other(guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true));
    back = batch.cpu();
  }
  const bool still_computes = !computed.query();
  CHECK(still_computes);
  CHECK(at::equal(back, host));
}

}  // namespace oracle_gpu_batches_test
