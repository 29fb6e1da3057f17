// File: trainer/batch_size_search.h (internal)
// The search of auto_find_batch_size. It starts a run again with smaller batches. A step
// accumulates more of them, so that it has the same rows.
//
//   BatchSizeSearch search(trainer);           // keeps the weights, the random state and objects
//   const auto checkpoint = search.restart_point(newest, resumed);    // after a run out of memory
//   if (checkpoint && search.halve()) search.restart(*checkpoint);
//
// Thread rule: that of the Trainer.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/trainer/batch_size.h"
#include "trainer/trainer_impl.h"

namespace hasten {

// Returns about half of the rows, with the same number of rows in a step. Returns nullopt if there
// is only one row.
std::optional<BatchSize> smaller_batch(const BatchSize& size);

class Trainer::BatchSizeSearch {
 public:
  // A collective: all processes throw if a registered object of one of them throws.
  explicit BatchSizeSearch(Impl& trainer);

  // Returns the checkpoint from which a run with smaller batches can continue: the newest one of
  // the run that failed, or else the one that it resumed from. Both paths may be empty. Returns an
  // empty path if the run starts again, and nullopt if it resumed and smaller batches cannot. A
  // collective.
  std::optional<std::filesystem::path> restart_point(const std::filesystem::path& newest,
                                                     const std::filesystem::path& resumed) const;
  // Returns false if the batches have one row already.
  bool halve();
  // Prepares a run that continues from the checkpoint. If the path is empty, the run begins with
  // the weights, the random state and the registered objects as they were at the start, and the
  // checkpoints of the run that failed are removed. A collective.
  void restart(const std::filesystem::path& checkpoint);

 private:
  bool all_allow_smaller_batches(const std::filesystem::path& checkpoint) const;

  Impl& trainer_;
  TensorDict random_, weights_;
  std::map<std::string, TensorDict> objects_;  // the registered ones
};

}  // namespace hasten
