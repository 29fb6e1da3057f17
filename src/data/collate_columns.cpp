#include "data/collate_columns.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {

std::string type_and_shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::string out = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (std::int64_t d = 0; d < tensor.dim(); ++d) out += str(d > 0 ? ", " : "", tensor.size(d));
  return out + "]";
}

[[noreturn]] void fail_collate(std::size_t row, const std::string& column, std::string got,
                               std::string expected, std::string hint) {
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
    fail_collate(row, column, type_and_shape(tensor), type_and_shape(first) + ", as row 0",
                 "DataCollatorWithPadding pads token rows");
  }
  const at::Tensor all = at::stack(tensors);
  if (column != "label") return all;
  return all.to(all.is_floating_point() ? at::kFloat : at::kLong);  // the types that losses take
}

std::vector<at::Tensor> column_of(std::span<const TensorDict> rows, const std::string& name) {
  std::vector<at::Tensor> column;
  column.reserve(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto found = rows[row].find(name);
    if (found == rows[row].end()) fail_collate(row, name, "nothing", "a tensor, as in row 0");
    column.push_back(found->second);
  }
  return column;
}

void require_same_columns(std::span<const TensorDict> rows) {
  for (std::size_t row = 1; row < rows.size(); ++row) {
    for (const auto& [name, tensor] : rows[row]) {
      if (!rows[0].contains(name))
        fail_collate(row, name, "a tensor", "no such column, as in row 0");
    }
  }
}

std::string name_in_batch(const std::string& column) {
  return column == "label" || column == "label_ids" ? "labels" : column;
}

at::Tensor whole_numbers(std::size_t rows, std::int64_t length, std::int64_t value) {
  return at::full({static_cast<std::int64_t>(rows), length}, value,
                  at::TensorOptions().dtype(at::kLong));
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

at::Tensor padded_column(const std::string& name, std::vector<at::Tensor> column,
                         std::int64_t length, std::int64_t padding,
                         const std::vector<std::int64_t>& lengths) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    at::Tensor& tensor = column[row];
    if (!tensor.defined() || tensor.dim() != 1 || tensor.size(0) != lengths[row] ||
        tensor.is_floating_point()) {
      fail_collate(row, name, type_and_shape(tensor),
                   str("whole numbers [", lengths[row], "], one per token"));
    }
    tensor = tensor.to(at::kCPU, at::kLong).contiguous();
  }
  at::Tensor out = whole_numbers(column.size(), length, padding);
  std::int64_t* to = out.mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < column.size(); ++row, to += length) {
    std::copy_n(column[row].const_data_ptr<std::int64_t>(), lengths[row], to);
  }
  return out;
}

std::vector<std::int64_t> lengths_of(std::span<const TensorDict> rows) {
  std::vector<std::int64_t> lengths;
  const std::vector<at::Tensor> ids = column_of(rows, "input_ids");
  for (std::size_t row = 0; row < ids.size(); ++row) {
    if (!ids[row].defined() || ids[row].dim() != 1) {
      fail_collate(row, "input_ids", type_and_shape(ids[row]), "[tokens]");
    }
    lengths.push_back(ids[row].size(0));
  }
  return lengths;
}

std::optional<std::string> label_column_of(const TensorDict& row) {
  for (const char* name : {"labels", "label", "label_ids"}) {
    if (row.contains(name)) return name;
  }
  return std::nullopt;
}

std::int64_t rounded_up(std::int64_t length, std::optional<std::int64_t> multiple) {
  const std::int64_t step = std::max<std::int64_t>(1, multiple.value_or(1));
  return (length + step - 1) / step * step;
}

TensorDict tensors_of(const TokenRow& row) {
  const auto tensor = [](std::span<const std::int32_t> values) {
    at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
    return out;
  };
  TensorDict out = {{"input_ids", tensor(row.input_ids)}};
  if (!row.token_type_ids.empty()) out["token_type_ids"] = tensor(row.token_type_ids);
  if (!row.token_labels.empty()) out["labels"] = tensor(row.token_labels);
  if (row.label.defined()) out["labels"] = row.label;
  return out;
}

}  // namespace hasten::detail
