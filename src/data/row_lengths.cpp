#include "hasten/data/row_lengths.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {

std::vector<std::int64_t> lengths_of_tokens(const TokenDataset& dataset) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row < dataset.size(); ++row) lengths.push_back(dataset.length(row));
  return lengths;
}

std::vector<std::int64_t> lengths_of_columns(const ColumnDataset& dataset,
                                             const std::string& column) {
  const auto found = dataset.columns().find(column);
  if (found != dataset.columns().end()) {
    const at::Tensor& given = found->second;
    if (given.dim() != 1 || given.is_floating_point())
      fail_lengths("column \"" + column + "\", which is not one whole number per row");
    const at::Tensor values = given.to(at::kCPU, at::kLong).contiguous();
    const auto* first = values.const_data_ptr<std::int64_t>();
    return {first, first + values.numel()};
  }
  const auto ids = dataset.columns().find("input_ids");
  if (ids == dataset.columns().end() || ids->second.dim() < 2)
    fail_lengths(str("a dataset without the columns \"", column, "\" and input_ids"));
  return std::vector<std::int64_t>(static_cast<std::size_t>(dataset.size()), ids->second.size(1));
}

std::int64_t length_of_row(const TensorDict& row, const std::string& column, std::int64_t index) {
  if (const auto found = row.find(column); found != row.end()) {
    if (!found->second.defined() || found->second.numel() != 1)
      fail_lengths(str("row ", index, ": column \"", column, "\", which is not one number"));
    return found->second.item<std::int64_t>();
  }
  const auto ids = row.find("input_ids");
  if (ids == row.end() || !ids->second.defined() || ids->second.dim() == 0)
    fail_lengths(str("row ", index, " without \"", column, "\" and input_ids"));
  return ids->second.size(0);
}

void fail_lengths(const std::string& what) {
  throw DataError("data.lengths",
                  {.what = "grouping rows by length",
                   .got = what,
                   .expected = "one length for each row",
                   .hint = "give the rows a column with their lengths, or choose another order"});
}

}  // namespace hasten::detail
