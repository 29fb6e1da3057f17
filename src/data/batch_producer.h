// File: data/batch_producer.h (internal)
// Makes batches by number, on demand or ahead of use on threads, and returns them in order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>

#include "hasten/data/detail/loader_core.h"

namespace hasten::detail {

// This process's part of a step, or the exception thrown instead, or the end.
struct BatchResult {
  ErasedBatch batch;  // null if all rows of the step belong to other processes
  // With step_rows above 0, it is the error of a batch that has only repeated rows of a shard.
  std::exception_ptr error;
  std::int64_t step_rows =
      0;                // the rows of all processes in a step, without repeated rows (even_batches)
  BatchInfo info = {};  // is_last is set when the batch becomes the current one
  bool is_end() const { return step_rows == 0 && error == nullptr; }
};

class BatchProducer {
 public:
  virtual ~BatchProducer() = default;  // stops and joins its threads, if any
  // Returns the next batch and blocks until it is made.
  virtual BatchResult next() = 0;
};

constexpr std::int64_t kUnknownEnd = std::numeric_limits<std::int64_t>::max();

using BatchMaker = std::function<BatchResult(std::int64_t number)>;

// Returns a producer of the batches from `first` up to but not including `end`, or until `make`
// returns the end. An error is followed by the end. With `threads` above 0, those threads call
// `make`, for up to `ahead` batches in advance; otherwise next() calls it. If the system lacks
// threads, fewer threads make the batches; throws IoError "io.thread" if it has none.
std::unique_ptr<BatchProducer> make_producer(BatchMaker make, std::int64_t first, std::int64_t end,
                                             std::int64_t threads, std::int64_t ahead);

// The same with one thread. It makes the `ahead` batches even if the producer is destroyed earlier,
// because other processes wait for each of them.
std::unique_ptr<BatchProducer> make_draining_producer(BatchMaker make, std::int64_t first,
                                                      std::int64_t ahead);

}  // namespace hasten::detail
