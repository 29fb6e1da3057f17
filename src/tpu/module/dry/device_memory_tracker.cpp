#include "tpu/module/dry/device_memory_tracker.h"

namespace hasten::dry_tpu {

DeviceMemoryTracker::DeviceMemoryTracker() { visits_.emplace_back().phase = "setup"; }

void DeviceMemoryTracker::add(std::int64_t bytes) {
  now_.tensors += bytes;
  update_peaks(now_);
}

void DeviceMemoryTracker::remove(std::int64_t bytes) {
  now_.tensors -= bytes;
  visits_.back().tensors_after = now_.tensors;
}

void DeviceMemoryTracker::load(std::int64_t code) {
  now_.code += code;
  update_peaks(now_);
}

void DeviceMemoryTracker::unload(std::int64_t code) { now_.code -= code; }

void DeviceMemoryTracker::run(const std::string& program, const Run& run) {
  now_.tensors += run.results;
  MemoryUsage during = now_;
  during.temporaries = run.temporaries;
  during.program = program;
  update_peaks(during);
  remove(run.released_arguments);
}

void DeviceMemoryTracker::enter(const std::string& phase) {
  visits_.push_back({.phase = phase,
                     .tensors_before = now_.tensors,
                     .tensors_after = now_.tensors,
                     .peak = now_});
}

void DeviceMemoryTracker::update_peaks(const MemoryUsage& usage) {
  visits_.back().tensors_after = now_.tensors;
  if (usage.total() > peak_.total()) peak_ = usage;
  if (usage.total() > visits_.back().peak.total()) visits_.back().peak = usage;
}

}  // namespace hasten::dry_tpu
