#include "hasten/data/detail/static_shapes.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <optional>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kMinLength = 16;

// Rounds up to 16, 32, 48, 64, 96, 128, 192, ...: a power of two, or the middle between two.
std::int64_t rounded_length(std::int64_t length) {
  std::int64_t power = kMinLength;
  while (power < length) power *= 2;
  const std::int64_t middle = power / 4 * 3;
  return length <= middle && middle >= 3 * kMinLength ? middle : power;
}

bool is_labels(const std::string& name, const StaticShapes& shapes) {
  return name == shapes.labels;
}

// The length of input_ids; 0 if the batch has none.
std::int64_t length_of(const TensorDict& batch) {
  const auto ids = batch.find("input_ids");
  return ids != batch.end() && ids->second.dim() == 2 ? ids->second.size(1) : 0;
}

// Returns, by name, the padding value of each column that has one entry per token. Returns nothing
// if one of these columns is unknown, because it may hold labels, or weights of a loss.
std::optional<std::map<std::string, std::int64_t>> padding_values(const TensorDict& batch,
                                                                  std::int64_t length,
                                                                  const StaticShapes& shapes) {
  std::map<std::string, std::int64_t> padding_values;
  for (const auto& [name, tensor] : batch) {
    if (tensor.dim() < 2 || tensor.size(1) != length) continue;
    const bool known =
        std::find(shapes.tokens.begin(), shapes.tokens.end(), name) != shapes.tokens.end();
    if (is_labels(name, shapes)) {
      if (tensor.is_floating_point()) continue;  // one entry per class, not per token
      padding_values[name] = kIgnoredLabel;
    } else if (known && tensor.dim() == 2) {
      padding_values[name] = 0;
    } else {
      return std::nullopt;
    }
  }
  return padding_values;
}

TensorDict with_length(TensorDict batch, std::int64_t length, std::int64_t wanted,
                       const StaticShapes& shapes) {
  if (length == 0) return batch;
  at::Tensor& mask = batch["attention_mask"];
  if (!mask.defined()) mask = at::ones({rows_of(batch), length}, at::kLong);
  if (length == wanted) return batch;
  const auto columns = padding_values(batch, length, shapes);
  if (!columns) return batch;
  for (const auto& [name, value] : *columns) batch[name] = pad_dim(batch[name], 1, wanted, value);
  return batch;
}

TensorDict with_rows(TensorDict batch, std::int64_t rows, std::int64_t wanted,
                     const StaticShapes& shapes) {
  const auto labels = batch.find(shapes.labels);
  // Without labels that mark them, a loss would count the added rows. Without gradients there is no
  // loss, and without_padding() removes those rows.
  const bool marks =
      labels == batch.end() ? !at::GradMode::is_enabled() : !labels->second.is_floating_point();
  if (!marks || rows == 0 || rows >= wanted) return batch;
  for (auto& [name, tensor] : batch) {
    if (tensor.dim() == 0 || tensor.size(0) != rows) continue;
    if (is_labels(name, shapes)) {
      tensor = pad_dim(tensor, 0, wanted, kIgnoredLabel);
      continue;
    }
    std::vector<std::int64_t> sizes = tensor.sizes().vec();
    sizes[0] = wanted - rows;
    tensor = at::cat({tensor, tensor.narrow(0, 0, 1).expand(sizes)}, 0);
  }
  return batch;
}

}  // namespace

std::int64_t padded_length(std::int64_t length, const StaticShapes& shapes) {
  if (shapes.max_length > 0 && length > shapes.max_length) {
    throw DataError("data.static-length",
                    {.what = "a batch for a device with static shapes",
                     .got = str("rows of ", length, " tokens"),
                     .expected = str("at most ", shapes.max_length),
                     .hint = "truncate the texts when tokenizing (--max_length)"});
  }
  const auto given = std::lower_bound(shapes.lengths.begin(), shapes.lengths.end(), length);
  const std::int64_t padded = shapes.lengths.empty()          ? rounded_length(length)
                              : given == shapes.lengths.end() ? length
                                                              : *given;
  return shapes.max_length > 0 ? std::min(padded, shapes.max_length) : padded;
}

std::int64_t rows_of(const TensorDict& batch) {
  for (const auto& [name, tensor] : batch) {
    if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  }
  return 0;
}

TensorDict with_static_shape(const TensorDict& batch, std::int64_t rows,
                             const StaticShapes& shapes) {
  const std::int64_t length = length_of(batch);
  TensorDict padded = with_length(batch, length, padded_length(length, shapes), shapes);
  return with_rows(std::move(padded), rows_of(batch), rows, shapes);
}

at::Tensor without_padding(const at::Tensor& outputs, std::int64_t rows, std::int64_t length) {
  at::Tensor kept = outputs.to(at::kCPU);
  if (kept.dim() > 0 && kept.size(0) > rows) kept = kept.narrow(0, 0, rows);
  if (kept.dim() > 2 && length > 0 && kept.size(1) > length) kept = kept.narrow(1, 0, length);
  return kept;
}

}  // namespace hasten
