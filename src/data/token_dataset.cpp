#include "hasten/data/token_dataset.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/dataset.h"

namespace hasten {
namespace {

[[noreturn]] void fail_row(std::int64_t row, const std::string& what, const std::string& got,
                           const std::string& expected) {
  throw DataError("data.token-row",
                  {.what = str("row ", row, ": ", what), .got = got, .expected = expected});
}

// An optional column must have one value per token, in every row or in none.
void check_column(std::int64_t row, const char* name, std::size_t got, std::size_t ids,
                  bool others_have) {
  if (got != ids && got != 0) fail_row(row, name, str(got, " values"), str(ids, ", one per token"));
  if (row == 0 || (got != 0) == others_have) return;
  fail_row(row, name, got != 0 ? "some" : "none",
           others_have ? "some, as in the earlier rows" : "none, as in the earlier rows");
}

}  // namespace

void TokenDataset::push_back(Ids input_ids, Ids token_type_ids, Ids token_labels) {
  if (input_ids.empty()) fail_row(size(), "input_ids", "no token", "at least one");
  check_column(size(), "token_type_ids", token_type_ids.size(), input_ids.size(), !types_.empty());
  check_column(size(), "token_labels", token_labels.size(), input_ids.size(),
               !token_labels_.empty());
  ids_.insert(ids_.end(), input_ids.begin(), input_ids.end());
  types_.insert(types_.end(), token_type_ids.begin(), token_type_ids.end());
  token_labels_.insert(token_labels_.end(), token_labels.begin(), token_labels.end());
  ends_.push_back(tokens());
}

void TokenDataset::push_back(const Encoding& encoding) {
  // Padding is on one side and has mask 0; an absent mask means that there is no padding.
  std::size_t first = 0, last = encoding.input_ids.size();
  if (encoding.attention_mask.size() == last) {
    while (first < last && encoding.attention_mask[first] == 0) ++first;
    while (last > first && encoding.attention_mask[last - 1] == 0) --last;
  }
  const Ids types(encoding.token_type_ids);
  push_back(Ids(encoding.input_ids).subspan(first, last - first),
            types.size() == encoding.input_ids.size() ? types.subspan(first, last - first) : types);
}

void TokenDataset::set_labels(at::Tensor labels) {
  if (!labels.defined() || labels.dim() == 0 || labels.size(0) != size()) {
    throw DataError("data.labels", {.what = "labels of a token dataset",
                                    .got = !labels.defined()   ? "an undefined tensor"
                                           : labels.dim() == 0 ? "a scalar"
                                                               : str(labels.size(0), " rows"),
                                    .expected = str(size(), ", one per row"),
                                    .hint = "set the labels after adding all rows"});
  }
  if (!token_labels_.empty()) {
    throw DataError("data.labels",
                    {.what = "labels of a token dataset whose tokens have their own labels",
                     .hint = "set either a label per row or labels of its tokens"});
  }
  if (labels.scalar_type() == at::kInt) labels = labels.to(at::kLong);
  labels_ = labels.contiguous();
}

std::int64_t TokenDataset::length(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return ends_[at] - (index > 0 ? ends_[at - 1] : 0);
}

TokenRow TokenDataset::get(std::int64_t index) const {
  detail::require_row(index, size());
  const auto count = static_cast<std::size_t>(length(index));
  const std::size_t first =
      static_cast<std::size_t>(ends_[static_cast<std::size_t>(index)]) - count;
  const auto part = [&](const std::vector<std::int32_t>& column) {
    return column.empty() ? Ids() : Ids(column).subspan(first, count);
  };
  TokenRow row{
      .input_ids = part(ids_), .token_type_ids = part(types_), .token_labels = part(token_labels_)};
  if (labels_.defined()) {
    // Rows added after set_labels have no label.
    if (index >= labels_.size(0)) {
      fail_row(index, "label", "none", "one: call set_labels again after adding rows");
    }
    row.label = labels_.select(0, index);
  }
  return row;
}

}  // namespace hasten
