// File: prepare/loader_registry.h (internal)
// The loaders of one Accelerator: their configuration, and their current batches. Calls without a
// batch as an argument (accumulate(), gather_for_metrics()) apply to the batch of the innermost
// loop.
//
//   LoaderRegistry loaders(configuration);
//   loaders.begin_pass(info);        // a loop over a prepared loader begins
//   loaders.current()->is_last;      // of its batch
//   loaders.end_pass(info);
//
// Thread rule: that of the Accelerator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hasten/data/detail/batch_info.h"
#include "hasten/data/detail/loader_sharding.h"

namespace hasten {

class LoaderRegistry {
 public:
  explicit LoaderRegistry(DataLoaderConfiguration configuration)
      : configuration_(std::move(configuration)) {}

  // The configuration of loaders that are prepared from now on.
  const DataLoaderConfiguration& configuration() const { return configuration_; }
  // True if the last step of a loader is filled up.
  bool even_batches() const { return even_batches_.value_or(configuration_.even_batches); }
  // Replaces the configuration's even_batches inside join_uneven_inputs. nullopt restores it.
  void set_even_batches(std::optional<bool> even) { even_batches_ = even; }

  // Adds the info of a pass's batches. It must stay valid until the end of the pass.
  void begin_pass(const BatchInfo& info) { passes_.push_back({.info = &info, .number = ++begun_}); }
  void end_pass(const BatchInfo& info) {
    std::erase_if(passes_, [&](const Pass& each) { return each.info == &info; });
  }
  // The info of the innermost pass, or null outside of all loops over prepared loaders.
  const BatchInfo* current() const { return passes_.empty() ? nullptr : passes_.back().info; }
  // The unique number of the innermost pass, or 0 outside of all loops.
  std::int64_t current_pass() const { return passes_.empty() ? 0 : passes_.back().number; }
  // The number of rows of the innermost pass's batch, without rows that only fill up a step. It is
  // 0 if the number is not known, and outside of all loops.
  std::int64_t rows_of_batch() const {
    if (passes_.empty()) return 0;
    const BatchInfo& info = *passes_.back().info;
    return std::max<std::int64_t>(0, info.real_rows >= 0 ? info.real_rows : info.rows);
  }
  // True if the innermost loop is at its last batch.
  bool at_last_batch() const { return !passes_.empty() && passes_.back().info->is_last; }

 private:
  struct Pass {
    const BatchInfo* info;
    std::int64_t number;
  };
  DataLoaderConfiguration configuration_;
  std::optional<bool> even_batches_;
  std::vector<Pass> passes_;  // the innermost last
  std::int64_t begun_ = 0;
};

}  // namespace hasten
