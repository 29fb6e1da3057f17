#include "hasten/data/views.h"

#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/sampler.h"

namespace hasten::detail {

void require_row(std::int64_t index, std::int64_t rows) {
  if (index >= 0 && index < rows) return;
  throw UsageError("data.row", {.what = "a row of the dataset",
                                .got = std::to_string(index),
                                .expected = str("0 to ", rows - 1)});
}

SplitRows split_rows(std::int64_t rows, const TrainTestSplitOptions& options) {
  const double wanted = options.test_size < 1
                            ? std::ceil(options.test_size * static_cast<double>(rows))
                            : options.test_size;
  if (!(wanted >= 1 && wanted < static_cast<double>(rows))) {
    throw UsageError("data.option", {.what = "train_test_split: test_size",
                                     .got = str(options.test_size, " of ", rows, " rows"),
                                     .expected = "at least one row for each part"});
  }
  const std::int64_t train = rows - static_cast<std::int64_t>(wanted);
  const EpochOrder order(rows, {.shuffle = options.shuffle, .seed = options.seed}, /*epoch=*/0);
  std::vector<std::int64_t> scratch;
  const auto all = order.slice(0, rows, scratch);
  return {.train = {all.begin(), all.begin() + train}, .test = {all.begin() + train, all.end()}};
}

}  // namespace hasten::detail
