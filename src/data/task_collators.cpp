#include "hasten/data/task_collators.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/collate_columns.h"
#include "data/padding.h"
#include "hasten/base/text.h"
#include "hasten/data/detail/packed_rows.h"

namespace hasten {
namespace {

using detail::column_of;
using detail::fail_collate;
using detail::type_and_shape;

std::vector<TensorDict> without_column(std::span<const TensorDict> rows, const std::string& name) {
  std::vector<TensorDict> out(rows.begin(), rows.end());
  for (TensorDict& row : out) row.erase(name);
  return out;
}

// Returns the labels [target tokens] of all rows, padded to one length.
at::Tensor padded_targets(const DataCollatorForSeq2Seq& options, const std::string& name,
                          const std::vector<at::Tensor>& labels) {
  std::vector<std::int64_t> lengths;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const at::Tensor& label = labels[row];
    if (!label.defined() || label.dim() != 1)
      fail_collate(row, name, type_and_shape(label), "[target tokens]");
    if (options.max_length && label.size(0) > *options.max_length) {
      fail_collate(row, name, str(label.size(0), " tokens"),
                   str("at most max_length, ", *options.max_length),
                   "truncate the targets when they are tokenized");
    }
    lengths.push_back(label.size(0));
  }
  const std::int64_t length = detail::rounded_up(
      options.max_length ? *options.max_length : *std::max_element(lengths.begin(), lengths.end()),
      options.pad_to_multiple_of);
  return detail::padded_column(name, labels, length, options.label_pad_token_id, lengths);
}

// Returns the decoder's inputs: `start`, then the labels without their last column.
at::Tensor shifted_right(const at::Tensor& labels, std::int64_t start, std::int64_t pad) {
  const at::Tensor first = at::full({labels.size(0), 1}, start, labels.options());
  const std::int64_t kept = std::max<std::int64_t>(0, labels.size(1) - 1);
  const at::Tensor shifted = at::cat({first, labels.narrow(1, 0, kept)}, 1);
  return shifted.masked_fill(shifted == kIgnoredLabel, pad);
}

// Returns each choice of each row as a row of its own, without the label.
std::vector<TensorDict> rows_of_choices(std::span<const TensorDict> rows,
                                        const std::optional<std::string>& label) {
  const std::vector<at::Tensor> ids = column_of(rows, "input_ids");
  std::vector<TensorDict> out;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const at::Tensor& tokens = ids[row];
    if (!tokens.defined() || tokens.dim() != 2 || tokens.size(0) != ids[0].size(0)) {
      fail_collate(
          row, "input_ids", type_and_shape(tokens),
          row == 0 ? "[choices, tokens]" : str("[", ids[0].size(0), " choices, tokens], as row 0"));
    }
    for (std::int64_t choice = 0; choice < tokens.size(0); ++choice) {
      TensorDict& one = out.emplace_back();
      for (const auto& [name, tensor] : rows[row]) {
        if (name == label) continue;
        if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != tokens.size(0)) {
          fail_collate(row, name, type_and_shape(tensor), "one entry per choice");
        }
        one.emplace(name, tensor.select(0, choice));
      }
    }
  }
  return out;
}

// The columns of a flat batch while its rows are added.
struct FlatColumns {
  std::vector<at::Tensor> ids, labels, positions, numbers;
  std::vector<std::int32_t> starts = {0};
  std::int64_t longest = 0;
};

void add_row(FlatColumns& flat, const DataCollatorWithFlattening& options, const TensorDict& row,
             std::int64_t length) {
  const auto number = static_cast<std::size_t>(flat.ids.size());
  const at::Tensor ids = row.at("input_ids").to(at::kCPU, at::kLong);
  const auto label = detail::label_column_of(row);
  at::Tensor labels = ids;
  if (label) {
    labels = row.at(*label);
    if (!labels.defined() || labels.sizes() != ids.sizes() || labels.is_floating_point()) {
      fail_collate(number, *label, type_and_shape(labels),
                   str("whole numbers [", length, "], one per token"));
    }
    labels = labels.to(at::kCPU, at::kLong);
  }
  labels = labels.clone();
  if (length > 0) labels[0] = options.separator_id;
  flat.ids.push_back(ids);
  flat.labels.push_back(labels);
  flat.positions.push_back(
      at::arange(options.position_ids_start, options.position_ids_start + length, at::kLong));
  flat.numbers.push_back(at::full({length}, static_cast<std::int64_t>(number), at::kInt));
  flat.starts.push_back(flat.starts.back() + static_cast<std::int32_t>(length));
  flat.longest = std::max(flat.longest, length);
}

}  // namespace

TensorDict DataCollatorForSeq2Seq::operator()(std::span<const TensorDict> rows) const {
  detail::require_rows(rows.size());
  const DataCollatorWithPadding pad{.pad_token_id = pad_token_id,
                                    .pad_to_multiple_of = pad_to_multiple_of,
                                    .max_length = max_length,
                                    .pad_token_type_id = pad_token_type_id};
  const auto label = detail::label_column_of(rows[0]);
  if (!label) return pad(rows);
  const std::vector<at::Tensor> labels = column_of(rows, *label);
  TensorDict batch = pad(without_column(rows, *label));
  batch["labels"] = padded_targets(*this, *label, labels);
  if (decoder_start_token_id)
    batch["decoder_input_ids"] =
        shifted_right(batch["labels"], *decoder_start_token_id, pad_token_id);
  return batch;
}

TensorDict DataCollatorForMultipleChoice::operator()(std::span<const TensorDict> rows) const {
  detail::require_rows(rows.size());
  detail::require_same_columns(rows);
  const DataCollatorWithPadding pad{.pad_token_id = pad_token_id,
                                    .pad_to_multiple_of = pad_to_multiple_of,
                                    .max_length = max_length,
                                    .pad_token_type_id = pad_token_type_id};
  const auto label = detail::label_column_of(rows[0]);
  const std::vector<TensorDict> choices = rows_of_choices(rows, label);
  TensorDict batch = pad(choices);
  for (auto& [name, tensor] : batch) {
    std::vector<std::int64_t> sizes = tensor.sizes().vec();
    sizes[0] /= static_cast<std::int64_t>(rows.size());
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(rows.size()));
    tensor = tensor.view(sizes);
  }
  if (label) batch["labels"] = detail::stacked(column_of(rows, *label), *label).to(at::kLong);
  return batch;
}

TensorDict DataCollatorWithFlattening::operator()(std::span<const TensorDict> rows) const {
  detail::require_rows(rows.size());
  const std::vector<std::int64_t> lengths = detail::lengths_of(rows);
  FlatColumns flat;
  for (std::size_t row = 0; row < rows.size(); ++row) add_row(flat, *this, rows[row], lengths[row]);
  const auto joined = [](const std::vector<at::Tensor>& parts) {
    return at::cat(parts).unsqueeze(0);
  };
  TensorDict batch = {{"input_ids", joined(flat.ids)}, {"labels", joined(flat.labels)}};
  if (return_position_ids) batch["position_ids"] = joined(flat.positions);
  if (return_seq_idx) batch["seq_idx"] = joined(flat.numbers);
  if (return_flash_attn_kwargs) {
    batch[kPackedRows] = batch["cu_seq_lens_k"] = at::tensor(flat.starts, at::kInt);
    batch["max_length_q"] = batch["max_length_k"] = at::scalar_tensor(flat.longest, at::kLong);
  }
  return batch;
}

TensorDict DataCollatorWithFlattening::operator()(std::span<const TokenRow> rows) const {
  std::vector<TensorDict> tensors;
  for (const TokenRow& row : rows) {
    TokenRow tokens = row;
    tokens.label = at::Tensor();  // A label of the whole row has no place in a flat batch.
    tensors.push_back(detail::tensors_of(tokens));
  }
  return (*this)(std::span<const TensorDict>(tensors));
}

}  // namespace hasten
