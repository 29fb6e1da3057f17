#include "hasten/data/collator.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "data/collate_columns.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using namespace detail;

std::int64_t padded_length(const DataCollatorWithPadding& options,
                           const std::vector<std::int64_t>& lengths) {
  if (options.max_length) {
    for (std::size_t row = 0; row < lengths.size(); ++row) {
      if (lengths[row] <= *options.max_length) continue;
      fail_collate(row, "input_ids", str(lengths[row], " tokens"),
                   str("at most max_length, ", *options.max_length),
                   "truncate the texts when they are tokenized");
    }
  }
  const std::int64_t longest =
      options.max_length ? *options.max_length : *std::max_element(lengths.begin(), lengths.end());
  return rounded_up(longest, options.pad_to_multiple_of);
}

using TokenColumn = std::span<const std::int32_t> TokenRow::*;

bool any_row_has(std::span<const TokenRow> rows, TokenColumn column) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const TokenRow& row) { return !(row.*column).empty(); });
}

bool any_row_has_label(std::span<const TokenRow> rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const TokenRow& row) { return row.label.defined(); });
}

// Pads a column with one value per token to int64 [rows, length].
at::Tensor padded(const char* name, std::span<const TokenRow> rows, TokenColumn column,
                  std::int64_t length, std::int64_t padding) {
  at::Tensor out = whole_numbers(rows.size(), length, padding);
  std::int64_t* to = out.mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < rows.size(); ++row, to += length) {
    const auto values = rows[row].*column;
    const std::size_t tokens = rows[row].input_ids.size();
    if (values.size() != tokens) {
      fail_collate(row, name, str(values.size(), " values"), str(tokens, ", one per token"));
    }
    std::copy(values.begin(), values.end(), to);
  }
  return out;
}

// True if every row has one whole number per token, so that these are labels of tokens.
bool are_token_labels(const std::vector<at::Tensor>& labels,
                      const std::vector<std::int64_t>& lengths) {
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const at::Tensor& label = labels[row];
    if (!label.defined() || label.dim() != 1 || label.size(0) != lengths[row] ||
        label.is_floating_point())
      return false;
  }
  return true;
}

}  // namespace

std::vector<at::Tensor> detail::stack_by_position(
    const std::vector<std::vector<at::Tensor>>& rows) {
  require_rows(rows.size());
  std::vector<at::Tensor> batch;
  for (std::size_t place = 0; place < rows[0].size(); ++place) {
    std::vector<at::Tensor> column;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].size() != rows[0].size()) {
        fail_collate(row, "", str(rows[row].size(), " tensors"),
                     str(rows[0].size(), ", as in row 0"));
      }
      column.push_back(rows[row][place]);
    }
    batch.push_back(stacked(column, ""));
  }
  return batch;
}

TensorDict DefaultCollator::operator()(std::span<const TensorDict> rows) const {
  require_rows(rows.size());
  require_same_columns(rows);
  TensorDict batch;
  for (const auto& [name, tensor] : rows[0]) {
    batch[name_in_batch(name)] = stacked(column_of(rows, name), name);
  }
  return batch;
}

at::Tensor DefaultCollator::operator()(std::span<const at::Tensor> rows) const {
  require_rows(rows.size());
  return stacked({rows.begin(), rows.end()}, "");
}

TensorDict DataCollatorWithPadding::operator()(std::span<const TokenRow> rows) const {
  require_rows(rows.size());
  std::vector<std::int64_t> lengths;
  for (const TokenRow& row : rows) {
    lengths.push_back(static_cast<std::int64_t>(row.input_ids.size()));
  }
  const std::int64_t length = padded_length(*this, lengths);
  const auto column = [&](const char* name, TokenColumn member, std::int64_t padding) {
    return padded(name, rows, member, length, padding);
  };
  TensorDict batch = {{"input_ids", column("input_ids", &TokenRow::input_ids, pad_token_id)},
                      {"attention_mask", mask_of(lengths, length)}};
  if (any_row_has(rows, &TokenRow::token_type_ids)) {
    batch["token_type_ids"] =
        column("token_type_ids", &TokenRow::token_type_ids, pad_token_type_id);
  }
  if (any_row_has(rows, &TokenRow::token_labels)) {
    batch["labels"] = column("token_labels", &TokenRow::token_labels, label_pad_token_id);
  }
  if (any_row_has_label(rows)) {
    std::vector<at::Tensor> labels;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (!rows[row].label.defined()) fail_collate(row, "label", "none", "one, as in other rows");
      labels.push_back(rows[row].label);
    }
    batch["labels"] = stacked(labels, "labels");
  }
  return batch;
}

TensorDict DataCollatorWithPadding::operator()(std::span<const TensorDict> rows) const {
  require_rows(rows.size());
  require_same_columns(rows);
  const std::vector<std::int64_t> lengths = lengths_of(rows);
  const std::int64_t length = padded_length(*this, lengths);
  TensorDict batch;
  // The columns with an entry per token, and their values in padding.
  const std::map<std::string, std::int64_t> padding = {{"input_ids", pad_token_id},
                                                       {"token_type_ids", pad_token_type_id},
                                                       {"attention_mask", 0},
                                                       {"special_tokens_mask", 1},
                                                       {"word_ids", -1}};
  for (const auto& [name, tensor] : rows[0]) {
    const std::string to = name_in_batch(name);
    std::vector<at::Tensor> column = column_of(rows, name);
    if (const auto found = padding.find(name); found != padding.end()) {
      batch[to] = padded_column(name, std::move(column), length, found->second, lengths);
    } else if (to == "labels" && are_token_labels(column, lengths)) {
      batch[to] = padded_column(name, std::move(column), length, label_pad_token_id, lengths);
    } else {
      batch[to] = stacked(column, name);
    }
  }
  if (!batch.contains("attention_mask")) batch["attention_mask"] = mask_of(lengths, length);
  return batch;
}

}  // namespace hasten
