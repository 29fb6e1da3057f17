// Batches by number, made when asked for or ahead by threads, and handed out in order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>

#include "hasten/data/loader_core.h"

namespace hasten::detail {

// What this process has of a step, or what was thrown instead of it, or the end.
struct Made {
  AnyBatch batch;  // none: the step's rows are other processes'
  std::exception_ptr error;
  std::int64_t step_rows = 0;  // of all processes, without those that fill up
  std::int64_t rows = 0;       // of the batch
  std::int64_t real_rows = 0;  // of the batch, without those that fill up
  bool is_end() const { return step_rows == 0 && error == nullptr; }
};

class BatchPipe {
 public:
  virtual ~BatchPipe() = default;  // with threads: stops and joins them
  virtual Made next() = 0;
};

constexpr std::int64_t unknown_end = std::numeric_limits<std::int64_t>::max();

using MakeBatch = std::function<Made(std::int64_t number)>;

// Batches `first` to `end` (not included), or until `make` gives the end. After an error comes the
// end. With `threads` above 0, `make` is called from them, for up to `ahead` batches before they
// are asked for.
std::unique_ptr<BatchPipe> make_pipe(MakeBatch make, std::int64_t first, std::int64_t end,
                                     std::int64_t threads, std::int64_t ahead);

// The same with one thread, which makes all of those `ahead` batches also where the pipe is
// destroyed before: each of them is something that other processes wait for.
std::unique_ptr<BatchPipe> make_faithful_pipe(MakeBatch make, std::int64_t first,
                                              std::int64_t ahead);

}  // namespace hasten::detail
