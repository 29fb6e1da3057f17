#include "data/static_packed_rows.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <vector>

#include "data/padding.h"
#include "hasten/data/detail/packed_rows.h"
#include "hasten/data/detail/static_shapes.h"

namespace hasten {
namespace {

constexpr std::int64_t kMinStep = 16;
// The numbers of tokens of batches with few rows vary more, so they need larger steps.
constexpr std::int64_t kManyRows = 24;

// The distance between the numbers of tokens near this one. `rows` counts the added rows, too.
std::int64_t step_near(std::int64_t tokens, std::int64_t rows) {
  const std::int64_t steps_per_doubling = rows >= kManyRows + kFillerRows ? 8 : 4;
  std::int64_t power = kMinStep * steps_per_doubling;
  while (2 * power < tokens) power *= 2;
  return power / steps_per_doubling;
}

// Returns the next of the numbers of tokens that has room for a token in each added row.
std::int64_t static_tokens(std::int64_t tokens, std::int64_t rows) {
  const std::int64_t least = tokens + kFillerRows, step = step_near(least, rows + kFillerRows);
  return (least + step - 1) / step * step;
}

bool is_labels_of(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.sizes() == sizes && at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

// Returns the bounds with those of the added rows, which share the added tokens.
at::Tensor with_filler(const at::Tensor& bounds, std::int64_t tokens, std::int64_t padded) {
  at::Tensor longer = at::empty({bounds.size(0) + kFillerRows}, at::kInt);
  std::int32_t* const to = longer.mutable_data_ptr<std::int32_t>();
  const std::int32_t* const from = bounds.const_data_ptr<std::int32_t>();
  std::copy(from, from + bounds.size(0), to);
  for (std::int64_t row = 1; row <= kFillerRows; ++row) {
    to[bounds.size(0) - 1 + row] =
        static_cast<std::int32_t>(tokens + (padded - tokens) * row / kFillerRows);
  }
  return longer;
}

// The lengths of the rows, read through a pointer.
std::vector<std::int64_t> lengths_of(const at::Tensor& bounds) {
  const std::int32_t* const at = bounds.const_data_ptr<std::int32_t>();
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row + 1 < bounds.size(0); ++row)
    lengths.push_back(at[row + 1] - at[row]);
  return lengths;
}

bool are_int32_bounds(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kInt && tensor.dim() == 1 &&
         tensor.size(0) >= 2 && tensor.is_contiguous();
}

}  // namespace

at::Tensor packed_rows_on_host(const TensorDict& batch) {
  for (const char* const name : {kPackedRowsOnHost, kPackedRows}) {
    const auto found = batch.find(name);
    if (found != batch.end() && found->second.defined() && found->second.is_cpu())
      return found->second;
  }
  return {};
}

at::Tensor int32_rows_on_host(const TensorDict& batch) {
  const at::Tensor bounds = packed_rows_on_host(batch);
  return are_int32_bounds(bounds) ? bounds : at::Tensor();
}

TensorDict with_static_packed_rows(const TensorDict& batch, const std::string& labels) {
  const at::Tensor bounds = int32_rows_on_host(batch);
  const auto ids = batch.find("input_ids"), own = batch.find(labels);
  if (!bounds.defined() || !batch.contains(kPackedRows) || ids == batch.end() ||
      ids->second.dim() != 2 || ids->second.size(0) != 1 || own == batch.end())
    return batch;
  const std::int64_t rows = bounds.size(0) - 1, tokens = ids->second.size(1);
  if (bounds.const_data_ptr<std::int32_t>()[rows] != tokens) return batch;
  const std::int64_t padded = static_tokens(tokens, rows);
  static const std::set<std::string> kOfTokens = {"input_ids", "position_ids", "token_type_ids"};
  TensorDict made;
  for (const auto& [name, tensor] : batch) {
    if (name == kPackedRows || name == kPackedRowsOnHost) {
      made[name] = with_filler(bounds, tokens, padded);
    } else if (name == labels && is_labels_of(tensor, {1, tokens})) {
      made[name] = pad_dim(tensor, 1, padded, kIgnoredLabel);
    } else if (name == labels && is_labels_of(tensor, {rows})) {
      made[name] = pad_dim(tensor, 0, rows + kFillerRows, kIgnoredLabel);
    } else if (kOfTokens.count(name) != 0 && tensor.sizes() == at::IntArrayRef({1, tokens})) {
      made[name] = pad_dim(tensor, 1, padded, 0);
    } else {
      return batch;
    }
  }
  return made;
}

std::int64_t row_limit(const at::Tensor& bounds) {
  const std::vector<std::int64_t> lengths = lengths_of(bounds);
  const std::int64_t tokens = bounds.const_data_ptr<std::int32_t>()[lengths.size()];
  // The added rows of another batch of this shape may be longer than those of this one.
  const std::int64_t of_filler = step_near(tokens, bounds.size(0) - 1) / kFillerRows + 2;
  return padded_length(std::max(*std::max_element(lengths.begin(), lengths.end()), of_filler), {});
}

at::Tensor longest_bounds(const at::Tensor& bounds) {
  const std::int64_t rows = bounds.size(0) - 1, limit = row_limit(bounds);
  std::int64_t left = bounds.const_data_ptr<std::int32_t>()[rows];
  if (left < rows) return bounds;  // some rows have no tokens
  at::Tensor made = at::empty_like(bounds);
  std::int32_t* const to = made.mutable_data_ptr<std::int32_t>();
  to[0] = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t length = std::min(limit, left - (rows - row - 1));  // one for each later row
    to[row + 1] = to[row] + static_cast<std::int32_t>(length);
    left -= length;
  }
  return made;
}

}  // namespace hasten
