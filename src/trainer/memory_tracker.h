// File: trainer/memory_tracker.h (internal)
// The memory metrics of the Hugging Face Trainer, which skip_memory_metrics=false adds.
//
//   MemoryTracker tracker(/*enabled=*/true, device);
//   tracker.start(MemoryTracker::Stage::train);
//   ...
//   tracker.stop(MemoryTracker::Stage::train, metrics);   // train_mem_cpu_alloc_delta, ...
//
// For each stage (init, train, eval, test), alloc_delta is the memory at its end minus the memory
// at its start, and peaked_delta is the peak during the stage minus the memory at its end. Both are
// in bytes, of the process's resident memory (cpu), and of the tensors on a device with an
// allocator of its own (gpu). The figures of init, and before_init_mem_cpu, are added with the
// first stage after it. A stage within another one is ignored, such as an evaluation during
// training.
//
// A thread reads the peak once per millisecond. If the peak is the highest since the process began,
// the system's own figure is used. Thread rule: that of the Trainer.
// Source: TrainerMemoryTracker of transformers 5.23.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "hasten/metrics/metric.h"

namespace hasten {

class MemoryTracker {
 public:
  enum class Stage { init, train, eval, test };

  MemoryTracker(bool enabled, at::Device device) : enabled_(enabled), device_(device) {}
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;
  ~MemoryTracker() { stop_watching(); }

  void start(Stage stage);
  // Ends the stage and keeps its figures.
  void stop(Stage stage);
  // Does the same, and adds the figures to the metrics.
  void stop(Stage stage, Metrics& metrics);
  // Ends a stage that has failed, without figures.
  void abandon(Stage stage);

  // A stage that is abandoned unless it is stopped.
  class StageScope {
   public:
    StageScope(MemoryTracker& tracker, Stage stage) : tracker_(tracker), stage_(stage) {
      tracker_.start(stage_);
    }
    StageScope(const StageScope&) = delete;
    StageScope& operator=(const StageScope&) = delete;
    ~StageScope() {
      if (!is_stopped_) tracker_.abandon(stage_);
    }
    void stop(Metrics& metrics) {
      tracker_.stop(stage_, metrics);
      is_stopped_ = true;
    }

   private:
    MemoryTracker& tracker_;
    Stage stage_;
    bool is_stopped_ = false;
  };

 private:
  struct Use {
    std::int64_t begin = 0, end = 0, peak = 0;
  };
  struct StageUse {
    Use cpu;
    std::optional<Use> gpu;
  };

  bool is_ignored(Stage stage) const { return !enabled_ || (current_ && *current_ != stage); }
  void watch_peak();
  void stop_watching();
  void add(Stage stage, Metrics& metrics) const;

  bool enabled_;
  at::Device device_;
  std::optional<Stage> current_;
  StageUse open_;                      // the use of the current stage
  std::int64_t highest_at_start_ = 0;  // the highest since the process began
  std::map<Stage, StageUse> stages_;
  bool has_reported_init_ = false;
  std::atomic<bool> is_watching_{false};
  std::atomic<std::int64_t> peak_{0};
  std::thread thread_;
};

}  // namespace hasten
