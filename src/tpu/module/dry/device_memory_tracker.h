// File: tpu/module/dry/device_memory_tracker.h (internal)
// Counts the memory of one device: tensors, the code of loaded programs, and the memory that a
// program takes while it runs. It keeps the peak, in total and for each phase of the step.
//
//   DeviceMemoryTracker device_memory_tracker;
//   device_memory_tracker.add(4096);                                // a tensor
//   device_memory_tracker.run("tt_jit_mm", {.results = 1024, .temporaries = 512});
//   device_memory_tracker.peak().tensors;                           // 5120
//
// It is not synchronized; its owner holds a lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hasten::dry_tpu {

// Bytes at one moment.
struct MemoryUsage {
  std::int64_t tensors = 0, temporaries = 0, code = 0;
  std::string program;  // the program that ran, or empty if none ran
  std::int64_t total() const { return tensors + temporaries + code; }
};

struct Run {
  std::int64_t results = 0;      // in new memory
  std::int64_t temporaries = 0;  // released at its end
  // Bytes of arguments that it releases, except the arguments that give their memory to results.
  std::int64_t released_arguments = 0;
};

struct PhaseVisit {
  std::string phase;
  std::int64_t tensors_before = 0, tensors_after = 0;
  MemoryUsage peak;
};

class DeviceMemoryTracker {
 public:
  DeviceMemoryTracker();
  void add(std::int64_t bytes);
  void remove(std::int64_t bytes);
  void load(std::int64_t code);
  void unload(std::int64_t code);
  void run(const std::string& program, const Run& run);
  // Begins a visit to a phase. Everything that follows belongs to it.
  void enter(const std::string& phase);

  const MemoryUsage& now() const { return now_; }
  const MemoryUsage& peak() const { return peak_; }
  const std::vector<PhaseVisit>& visits() const { return visits_; }  // the last one has not ended

 private:
  void update_peaks(const MemoryUsage& usage);
  MemoryUsage now_, peak_;
  std::vector<PhaseVisit> visits_;
};

}  // namespace hasten::dry_tpu
