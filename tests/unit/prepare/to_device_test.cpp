// Batches are copied to a GPU on a stream of their own. The calls are those that the guard of a
// simulated GPU gets, and the memory is that of its allocator.
#include "hasten/prepare/detail/to_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "anatomy/dry_gpu.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"

namespace prepare_to_device_test {

using namespace hasten;
using anatomy::DryGpu;

namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr std::int64_t kMiB = 1 << 20;

const Gpu& h100() { return find_gpu("cuda:h100-80gb"); }

// Logs the calls that concern streams. The stream for copies is 7.
struct LoggingGuard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kGpu, id); }
  c10::Device getDevice() const override { return kGpu; }
  c10::Device exchangeDevice(c10::Device) const override { return kGpu; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(7); }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    log.push_back(str("current ", next.id()));
    return stream(std::exchange(current, next.id()));
  }
  void record(void**, const c10::Stream& recorded, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    log.push_back(str("event on ", recorded.id()));
  }
  void block(void*, const c10::Stream& waiting) const override {
    log.push_back(str(waiting.id(), " waits"));
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream& user) const override {
    log.push_back(str("used on ", user.id()));
  }
  void synchronizeStream(const c10::Stream&) const override { log.push_back("host waits"); }
  void synchronizeEvent(void*) const override { log.push_back("host waits"); }
  void synchronizeDevice(const c10::DeviceIndex) const override { log.push_back("host waits"); }

  mutable c10::StreamId current = 0;
  mutable std::vector<std::string> log;
};

// Replaces the guard of the simulated GPU.
class GuardReplacement {
 public:
  explicit GuardReplacement(const c10::impl::DeviceGuardImplInterface& guard)
      : before_(slot().exchange(&guard)) {}
  GuardReplacement(const GuardReplacement&) = delete;
  GuardReplacement& operator=(const GuardReplacement&) = delete;
  ~GuardReplacement() { slot() = before_; }

 private:
  static std::atomic<const c10::impl::DeviceGuardImplInterface*>& slot() {
    return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)];
  }
  const c10::impl::DeviceGuardImplInterface* const before_;
};

at::Tensor pinned_floats(std::int64_t mebibytes) {
  return at::ones({mebibytes * kMiB / 4}).pin_memory();
}

}  // namespace

TEST_CASE("to_device: a batch is copied on a stream of its own, and the computation waits for it") {
  const DryRun dry(h100());
  static const LoggingGuard& guard = *new LoggingGuard;
  std::pair<at::Tensor, at::Tensor> batch{pinned_floats(1), pinned_floats(2)};
  {
    const GuardReplacement replacement(guard);
    guard.log.clear();
    batch = to_device(std::move(batch), kGpu);
  }
  CHECK(batch.first.device() == kGpu);
  CHECK(batch.second.device() == kGpu);
  // Both copies are submitted without a wait for the computation, which waits once for both.
  CHECK(guard.log == std::vector<std::string>{"current 7", "current 0", "used on 0", "current 7",
                                              "current 0", "used on 0", "event on 7", "0 waits"});
}

TEST_CASE("to_device: tensors that are on their device already are not copied") {
  const DryRun dry(h100());
  static const LoggingGuard& guard = *new LoggingGuard;
  const at::Tensor there = at::ones({4}, at::TensorOptions(kGpu));
  const GuardReplacement replacement(guard);
  guard.log.clear();
  const auto batch = to_device(std::vector<at::Tensor>{there, at::Tensor()}, kGpu);
  CHECK(batch[0].is_same(there));
  CHECK_FALSE(batch[1].defined());
  CHECK(guard.log.empty());
  // On the CPU there is no stream.
  const at::Tensor here = at::ones({4});
  CHECK(to_device(here, at::kCPU).is_same(here));
  CHECK(guard.log.empty());
}

TEST_CASE("to_device: two batches are in the GPU's memory, apart from the computation's") {
  const DryRun dry(h100());
  const auto memory = DryGpu::active()->memory();
  const at::Tensor host = pinned_floats(12);
  at::Tensor batch;
  for (int step = 0; step < 5; ++step) {
    batch.reset();
    batch = to_device(host, kGpu);
    CHECK(memory->allocated() == 12 * kMiB);
  }
  CHECK(memory->reserved() == 24 * kMiB);
  const at::Tensor computed = at::empty({12 * kMiB / 4}, at::TensorOptions(kGpu));
  CHECK(memory->reserved() == 36 * kMiB);
  CHECK(DryGpu::active()->waits().by_cause().empty());
}

}  // namespace prepare_to_device_test
