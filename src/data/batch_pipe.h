// Batches by number, made when asked for or ahead by threads, and handed out in order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>

#include "hasten/data/loader.h"

namespace hasten::detail {

// A batch, or what was thrown instead of it, or neither: the end.
struct Made {
  AnyBatch batch;
  std::exception_ptr error;
  bool is_end() const { return batch == nullptr && error == nullptr; }
};

class BatchPipe {
 public:
  virtual ~BatchPipe() = default;  // with threads: stops and joins them
  virtual Made next() = 0;
};

constexpr std::int64_t unknown_end = std::numeric_limits<std::int64_t>::max();

// Batches `first` to `end` (not included), or until `make` gives null. After an error comes the
// end. With `threads` above 0, `make` is called from them, for up to `ahead` batches before they
// are asked for.
std::unique_ptr<BatchPipe> make_pipe(std::function<AnyBatch(std::int64_t)> make, std::int64_t first,
                                     std::int64_t end, std::int64_t threads, std::int64_t ahead);

}  // namespace hasten::detail
