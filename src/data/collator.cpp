#include "hasten/data/collator.h"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::string type_and_shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::string out = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (std::int64_t d = 0; d < tensor.dim(); ++d) out += str(d > 0 ? ", " : "", tensor.size(d));
  return out + "]";
}

[[noreturn]] void fail(std::size_t row, const std::string& column, std::string got,
                       std::string expected, std::string hint = "") {
  throw DataError("data.collate",
                  {.what = str("row ", row, column.empty() ? "" : ", column \"" + column + "\""),
                   .got = std::move(got),
                   .expected = std::move(expected),
                   .hint = std::move(hint)});
}

void require_rows(std::size_t rows) {
  if (rows == 0) throw DataError("data.collate", {.what = "a batch without rows"});
}

at::Tensor stacked(const std::vector<at::Tensor>& tensors, const std::string& column) {
  const at::Tensor& first = tensors[0];
  for (std::size_t row = 0; row < tensors.size(); ++row) {
    const at::Tensor& tensor = tensors[row];
    if (tensor.defined() && tensor.sizes() == first.sizes() &&
        tensor.scalar_type() == first.scalar_type())
      continue;
    fail(row, column, type_and_shape(tensor), type_and_shape(first) + ", as row 0",
         "DataCollatorWithPadding pads token rows");
  }
  const at::Tensor all = at::stack(tensors);
  if (column != "label") return all;
  return all.to(all.is_floating_point() ? at::kFloat : at::kLong);  // the types that losses take
}

// Returns the column of every row. Throws DataError "data.collate" if a row lacks it.
std::vector<at::Tensor> column_of(std::span<const TensorDict> rows, const std::string& name) {
  std::vector<at::Tensor> column;
  column.reserve(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto found = rows[row].find(name);
    if (found == rows[row].end()) fail(row, name, "nothing", "a tensor, as in row 0");
    column.push_back(found->second);
  }
  return column;
}

// Throws DataError "data.collate" if a row has a column that row 0 lacks.
void require_same_columns(std::span<const TensorDict> rows) {
  for (std::size_t row = 1; row < rows.size(); ++row) {
    for (const auto& [name, tensor] : rows[row]) {
      if (!rows[0].contains(name)) fail(row, name, "a tensor", "no such column, as in row 0");
    }
  }
}

std::string batch_name(const std::string& column) {
  return column == "label" || column == "label_ids" ? "labels" : column;
}

std::int64_t padded_length(const DataCollatorWithPadding& options,
                           const std::vector<std::int64_t>& lengths) {
  if (options.max_length) {
    for (std::size_t row = 0; row < lengths.size(); ++row) {
      if (lengths[row] <= *options.max_length) continue;
      fail(row, "input_ids", str(lengths[row], " tokens"),
           str("at most max_length, ", *options.max_length),
           "truncate the texts when they are tokenized");
    }
  }
  const std::int64_t longest =
      options.max_length ? *options.max_length : *std::max_element(lengths.begin(), lengths.end());
  const std::int64_t multiple = std::max<std::int64_t>(1, options.pad_to_multiple_of.value_or(1));
  return (longest + multiple - 1) / multiple * multiple;
}

at::Tensor whole_numbers(std::size_t rows, std::int64_t length, std::int64_t value) {
  return at::full({static_cast<std::int64_t>(rows), length}, value,
                  at::TensorOptions().dtype(at::kLong));
}

// Returns int64 [rows, length]: in each row the values that `of(row)` returns, then `padding`.
template <class Of>
at::Tensor padded(std::size_t rows, std::int64_t length, std::int64_t padding, Of&& of) {
  at::Tensor out = whole_numbers(rows, length, padding);
  std::int64_t* to = out.mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < rows; ++row, to += length) {
    const auto values = of(row);
    std::copy(values.begin(), values.end(), to);
  }
  return out;
}

at::Tensor mask_of(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  at::Tensor mask = whole_numbers(lengths.size(), length, 0);
  std::int64_t* to = mask.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t tokens : lengths) {
    std::fill_n(to, tokens, 1);
    to += length;
  }
  return mask;
}

// Pads a column of 1-D tensors, with one value per token, to `length`.
at::Tensor padded_column(const std::string& name, std::vector<at::Tensor> column,
                         std::int64_t length, std::int64_t padding,
                         const std::vector<std::int64_t>& lengths) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    at::Tensor& tensor = column[row];
    if (!tensor.defined() || tensor.dim() != 1 || tensor.size(0) != lengths[row] ||
        tensor.is_floating_point()) {
      fail(row, name, type_and_shape(tensor),
           str("whole numbers [", lengths[row], "], one per token"));
    }
    tensor = tensor.to(at::kCPU, at::kLong).contiguous();
  }
  return padded(column.size(), length, padding, [&](std::size_t row) {
    return std::span(column[row].const_data_ptr<std::int64_t>(),
                     static_cast<std::size_t>(lengths[row]));
  });
}

std::vector<std::int64_t> lengths_of(std::span<const TensorDict> rows) {
  std::vector<std::int64_t> lengths;
  const std::vector<at::Tensor> ids = column_of(rows, "input_ids");
  for (std::size_t row = 0; row < ids.size(); ++row) {
    if (!ids[row].defined() || ids[row].dim() != 1) {
      fail(row, "input_ids", type_and_shape(ids[row]), "[tokens]");
    }
    lengths.push_back(ids[row].size(0));
  }
  return lengths;
}

// True if every row has one whole number per token, so that the labels are those of tokens.
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

std::vector<at::Tensor> detail::stack_places(const std::vector<std::vector<at::Tensor>>& rows) {
  require_rows(rows.size());
  std::vector<at::Tensor> batch;
  for (std::size_t place = 0; place < rows[0].size(); ++place) {
    std::vector<at::Tensor> column;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].size() != rows[0].size()) {
        fail(row, "", str(rows[row].size(), " tensors"), str(rows[0].size(), ", as in row 0"));
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
    batch[batch_name(name)] = stacked(column_of(rows, name), name);
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
  const auto column = [&](std::span<const std::int32_t> TokenRow::*member, std::int64_t padding) {
    return padded(rows.size(), length, padding, [&](std::size_t row) { return rows[row].*member; });
  };
  TensorDict batch = {{"input_ids", column(&TokenRow::input_ids, pad_token_id)},
                      {"attention_mask", mask_of(lengths, length)}};
  if (!rows[0].token_type_ids.empty()) {
    batch["token_type_ids"] = column(&TokenRow::token_type_ids, pad_token_type_id);
  }
  if (!rows[0].token_labels.empty()) {
    batch["labels"] = column(&TokenRow::token_labels, label_pad_token_id);
  }
  if (rows[0].label.defined()) {
    std::vector<at::Tensor> labels;
    for (const TokenRow& row : rows) labels.push_back(row.label);
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
  for (const auto& [name, tensor] : rows[0]) {
    const std::string to = batch_name(name);
    std::vector<at::Tensor> column = column_of(rows, name);
    if (name == "input_ids") {
      batch[to] = padded_column(name, std::move(column), length, pad_token_id, lengths);
    } else if (name == "token_type_ids") {
      batch[to] = padded_column(name, std::move(column), length, pad_token_type_id, lengths);
    } else if (name == "attention_mask") {
      batch[to] = padded_column(name, std::move(column), length, 0, lengths);
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
