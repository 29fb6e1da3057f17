// File: ops/step_seeds.h (internal)
// The seeds of dropout in a step that a graph repeats. A kernel that gets its seed as a number
// would drop the same elements in every replay. It therefore reads the seed from a slot in device
// memory.
//
//   StepSeeds seeds(device);
//   { const StepSeeds::Recording recording(seeds); record_step(); }
//   seeds.draw();      // before each replay: the next seeds of LibTorch's default CPU generator
//
// A replay uses the seeds that the step would draw if it ran without a graph, in the same order. A
// function that is recomputed draws the seeds of its first run again, and so uses their slots.
// While a step is recorded, the generator advances as usual. The end of the recording restores its
// state, because a recorded step has not run.
//
// Thread rule: no other thread may draw from the generator while a step is recorded.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace hasten::ops {

class StepSeeds {
 public:
  explicit StepSeeds(at::Device device) : device_(device) {}

  // The scope in which a step is recorded. It must be the only one in the process.
  class [[nodiscard]] Recording {
   public:
    explicit Recording(StepSeeds& seeds);
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();

    // Throws UsageError "device.graph" if the step has drawn random numbers other than seeds from
    // the generator, because a replay could not draw them.
    void check_draws() const;

   private:
    StepSeeds& seeds_;
    at::Tensor before_;  // the generator's state
  };

  // Draws the seeds of the next replay and writes them to the device.
  void draw();
  // The number of seeds that the step draws.
  std::int64_t count() const { return count_; }

  // Returns the slot of a seed that was just drawn, or nullopt if no step is being recorded.
  // Throws UsageError "device.graph" if the step has too many seeds.
  static std::optional<at::Tensor> recorded_slot_of(std::int64_t seed);

 private:
  at::Tensor slot_of(std::int64_t seed);

  const at::Device device_;
  at::Tensor slots_;                                             // [kMaxSeeds] int64 on the device
  std::unordered_map<std::int64_t, std::int64_t> slot_indices_;  // key: a seed of the recorded step
  std::int64_t count_ = 0;
};

}  // namespace hasten::ops
