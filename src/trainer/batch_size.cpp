#include "hasten/trainer/batch_size.h"

#include "hasten/anatomy/out_of_memory.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/process/detail/rank_agreement.h"
#include "hasten/process/detail/same_text.h"
#include "hasten/process/once.h"
#include "trainer/batch_size_search.h"

namespace hasten {
namespace {

void check_start(const Group& group, const BatchSize& start) {
  check_same_text(
      str("rows ", start.rows, ", accumulation ", start.accumulation, ", floor ", start.floor),
      group,
      {.code = "trainer.batch-size",
       .what = "the start of find_executable_batch_size",
       .hint = "pass the same numbers in every process: they try the same batches"});
  if (start.rows >= start.floor && start.floor >= 1 && start.accumulation >= 1) return;
  throw UsageError("trainer.batch-size",
                   {.what = "find_executable_batch_size",
                    .got = str("rows ", start.rows, ", accumulation ", start.accumulation,
                               ", floor ", start.floor),
                    .expected = "whole numbers of at least 1, and at least as many rows as floor",
                    .hint = "begin with the rows that one process would take with enough memory"});
}

// Returns whether the batch fits in every process.
bool fits_everywhere(const Group& group, std::int64_t rows,
                     const std::function<void(std::int64_t rows)>& trial) {
  bool fits = true;
  once(group, true, [&] {
    try {
      trial(rows);
    } catch (const c10::Error& error) {
      if (!is_out_of_memory(error)) throw;
      fits = false;
    } catch (const std::bad_alloc&) {
      fits = false;
    }
  });
  if (!fits) empty_device_cache();
  return is_true_on_all_ranks(group, fits);
}

}  // namespace

BatchSize find_executable_batch_size(const Group& group, BatchSize start,
                                     const std::function<void(std::int64_t rows)>& trial) {
  check_start(group, start);
  BatchSize size = start;
  while (!fits_everywhere(group, size.rows, trial)) {
    const std::optional<BatchSize> smaller = smaller_batch(size);
    if (!smaller || smaller->rows < size.floor) {
      throw MemoryError("trainer.batch-size-floor",
                        {.what = "find_executable_batch_size",
                         .got = str("out of memory with batches of ", size.rows),
                         .expected = str("a batch of at least ", size.floor, " rows that fits"),
                         .hint = "use shorter rows, a smaller model or fewer processes a machine"});
    }
    size = *smaller;
  }
  return size;
}

}  // namespace hasten
