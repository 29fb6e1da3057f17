#include "trainer/memory_tracker.h"

#include <algorithm>
#include <chrono>

#include "base/start_thread.h"
#include "device/device.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"

namespace hasten {
namespace {

constexpr auto kMemoryPollInterval = std::chrono::milliseconds(1);

const char* name_of_stage(MemoryTracker::Stage stage) {
  switch (stage) {
    case MemoryTracker::Stage::init:
      return "init";
    case MemoryTracker::Stage::train:
      return "train";
    case MemoryTracker::Stage::eval:
      return "eval";
    case MemoryTracker::Stage::test:
      return "test";
  }
  return "";
}

}  // namespace

void MemoryTracker::start(Stage stage) {
  if (is_ignored(stage)) return;
  stop_watching();
  current_ = stage;
  open_ = {};
  const Device& device = device_of(device_);
  empty_device_cache();
  device.reset_allocated_peak(device_.index());
  if (const auto now = device.allocated(device_.index())) open_.gpu = Use{.begin = now->current};
  const HostMemory host = host_memory();
  open_.cpu.begin = host.resident;
  highest_at_start_ = host.peak_resident;
  peak_ = host.resident;
  is_watching_ = true;
  thread_ = start_thread([this] { watch_peak(); });
}

void MemoryTracker::watch_peak() {
  while (is_watching_) {
    peak_ = std::max(peak_.load(), host_memory().resident);
    std::this_thread::sleep_for(kMemoryPollInterval);
  }
}

void MemoryTracker::stop_watching() {
  is_watching_ = false;
  if (thread_.joinable()) thread_.join();
}

void MemoryTracker::stop(Stage stage) {
  if (is_ignored(stage)) return;
  stop_watching();
  empty_device_cache();
  const HostMemory host = host_memory();
  open_.cpu.end = host.resident;
  open_.cpu.peak = host.peak_resident > highest_at_start_ ? host.peak_resident
                                                          : std::max(peak_.load(), host.resident);
  if (open_.gpu) {
    const auto now = device_of(device_).allocated(device_.index());
    open_.gpu->end = now->current;
    open_.gpu->peak = now->peak;
  }
  stages_[stage] = open_;
  current_.reset();
}

void MemoryTracker::stop(Stage stage, Metrics& metrics) {
  if (is_ignored(stage)) return;
  stop(stage);
  if (!std::exchange(has_reported_init_, true)) {
    add(Stage::init, metrics);
    const StageUse& init = stages_[Stage::init];
    metrics["before_init_mem_cpu"] = static_cast<double>(init.cpu.begin);
    if (init.gpu) metrics["before_init_mem_gpu"] = static_cast<double>(init.gpu->begin);
  }
  add(stage, metrics);
}

void MemoryTracker::abandon(Stage stage) {
  if (is_ignored(stage)) return;
  stop_watching();
  current_.reset();
}

void MemoryTracker::add(Stage stage, Metrics& metrics) const {
  const StageUse& use = stages_.at(stage);
  const auto add_use = [&](const char* where, const Use& of) {
    const std::string prefix = str(name_of_stage(stage), "_mem_", where, "_");
    metrics[prefix + "alloc_delta"] = static_cast<double>(of.end - of.begin);
    metrics[prefix + "peaked_delta"] =
        static_cast<double>(std::max<std::int64_t>(0, of.peak - of.end));
  };
  add_use("cpu", use.cpu);
  if (use.gpu) add_use("gpu", *use.gpu);
}

}  // namespace hasten
