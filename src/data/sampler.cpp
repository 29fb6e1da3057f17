#include "hasten/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <numeric>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

EpochOrder::EpochOrder(std::int64_t rows, const OrderOptions& options, std::int64_t epoch)
    : size_(rows) {
  if (options.custom) {
    custom_ = options.custom(rows, options.seed, epoch);
    size_ = static_cast<std::int64_t>(custom_.size());
    for (const std::int64_t row : custom_) {
      if (row >= 0 && row < rows) continue;
      throw UsageError("data.order", {.what = "the order of epoch " + std::to_string(epoch),
                                      .got = str("row ", row),
                                      .expected = str("rows from 0 to ", rows - 1)});
    }
  } else if (options.shuffle) {
    const at::Generator generator =
        at::detail::createCPUGenerator(options.seed + static_cast<std::uint64_t>(epoch));
    random_ = at::randperm(rows, generator, at::TensorOptions().dtype(at::kLong));
  }
}

std::span<const std::int64_t> EpochOrder::slice(std::int64_t first, std::int64_t count,
                                                std::vector<std::int64_t>& scratch) const {
  const auto from = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count);
  if (!custom_.empty()) return std::span(custom_).subspan(from, n);
  if (random_.defined()) return {random_.const_data_ptr<std::int64_t>() + from, n};
  scratch.resize(n);
  std::iota(scratch.begin(), scratch.end(), first);
  return scratch;
}

}  // namespace hasten
