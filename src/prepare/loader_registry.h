// File: prepare/loader_registry.h (internal)
// The loaders of one Accelerator: how they are prepared, and their current batches. Calls
// that are given no batch (accumulate(), gather_for_metrics()) concern the batch of the innermost
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

#include "hasten/data/batch_info.h"
#include "hasten/data/share.h"

namespace hasten {

class LoaderRegistry {
 public:
  explicit LoaderRegistry(DataLoaderConfiguration configuration)
      : configuration_(std::move(configuration)) {}

  // The configuration of loaders that are prepared from now on.
  const DataLoaderConfiguration& configuration() const { return configuration_; }
  // True if the last step of a loader is filled up.
  bool even_batches() const { return even_batches_.value_or(configuration_.even_batches); }
  // Replaces the configuration's even_batches inside join_uneven_inputs; unset: it applies again.
  void set_even_batches(std::optional<bool> even) { even_batches_ = even; }

  // Adds the info of a pass's batches, which stays valid, and current, until the end of the pass.
  void begin_pass(const BatchInfo& info) { passes_.push_back({.info = &info, .number = ++begun_}); }
  void end_pass(const BatchInfo& info) {
    std::erase_if(passes_, [&](const Pass& each) { return each.info == &info; });
  }
  // The innermost pass's; null outside of all loops over prepared loaders.
  const BatchInfo* current() const { return passes_.empty() ? nullptr : passes_.back().info; }
  // The number of the innermost pass, which no other pass has; 0 outside of all loops.
  std::int64_t current_pass() const { return passes_.empty() ? 0 : passes_.back().number; }
  // The rows of its batch, without those that only fill up a step; 0: not known, or outside of all
  // loops.
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
