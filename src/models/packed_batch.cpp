#include "models/packed_batch.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "data/padding.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/pack_rows.h"
#include "models/losses.h"

namespace hasten {
namespace {

const at::Tensor* find(const TensorDict& batch, const char* name) {
  const auto found = batch.find(name);
  return found == batch.end() || !found->second.defined() ? nullptr : &found->second;
}

bool is_matrix_of_ids(const at::Tensor& x) {
  return x.device().is_cpu() && x.dim() == 2 && x.layout() == at::kStrided &&
         at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
}

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

// Returns where the rows begin, and the end, as int32. Writes through a pointer, so that a dry run
// knows the numbers too.
at::Tensor bounds_tensor(const std::vector<std::int64_t>& lengths) {
  at::Tensor bounds = at::empty({std::ssize(lengths) + 1}, at::kInt);
  std::int32_t* const to = bounds.mutable_data_ptr<std::int32_t>();
  to[0] = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row)
    to[row + 1] = to[row] + static_cast<std::int32_t>(lengths[row]);
  return bounds;
}

// Returns the numbers of a vector. Copies it to the host if it is on another device. Reads int32
// through a pointer, because in a dry run the result of a conversion has no content.
std::vector<std::int64_t> numbers_of(const at::Tensor& vector) {
  const at::Tensor here = vector.to(at::kCPU).contiguous();
  if (here.scalar_type() == at::kInt) {
    const std::int32_t* const from = here.const_data_ptr<std::int32_t>();
    return {from, from + here.numel()};
  }
  const at::Tensor wide = here.to(at::kLong);
  const std::int64_t* const from = wide.const_data_ptr<std::int64_t>();
  return {from, from + wide.numel()};
}

// The unmasked tokens: their indices in [rows, length] and the number in each row. of() returns
// nullopt if a row does not begin with an unmasked one, or if none is masked and `needs_padding`.
struct Tokens {
  std::vector<std::int64_t> indices, lengths;

  static std::optional<Tokens> of(const at::Tensor& attention_mask, bool needs_padding) {
    const at::Tensor mask = attention_mask.to(at::kLong).contiguous();
    const std::int64_t* counts = mask.const_data_ptr<std::int64_t>();
    const std::int64_t rows = mask.size(0), length = mask.size(1);
    Tokens tokens;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::size_t before = tokens.indices.size();
      for (std::int64_t index = row * length; index < (row + 1) * length; ++index) {
        if (counts[index] != 0) tokens.indices.push_back(index);
      }
      const bool begins = tokens.indices.size() > before && tokens.indices[before] == row * length;
      if (!begins) return std::nullopt;
      tokens.lengths.push_back(static_cast<std::int64_t>(tokens.indices.size() - before));
    }
    if (tokens.indices.empty()) return std::nullopt;
    if (needs_padding && std::ssize(tokens.indices) == mask.numel()) return std::nullopt;
    return tokens;
  }
};

bool are_in_table(const std::vector<std::int64_t>& ids, std::int64_t rows) {
  return std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= 0 && id < rows; });
}

// Returns the elements of x at these indices; x is [rows, length], or [1, length] for all rows.
// Reads by pointer, so that a dry run knows the ids too.
std::vector<std::int64_t> values_at(const at::Tensor& x, const std::vector<std::int64_t>& indices) {
  const at::Tensor whole = x.to(at::kLong).contiguous();
  const std::int64_t* from = whole.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> numbers;
  for (const std::int64_t index : indices) numbers.push_back(from[index % whole.numel()]);
  return numbers;
}

// Returns the columns of the indices, which a model uses as positions by default.
std::vector<std::int64_t> columns(const std::vector<std::int64_t>& indices, std::int64_t length) {
  std::vector<std::int64_t> numbers;
  for (const std::int64_t index : indices) numbers.push_back(index % length);
  return numbers;
}

bool fits(const at::Tensor* x, const at::Tensor& ids) {
  return x == nullptr || (is_matrix_of_ids(*x) && x->size(1) == ids.size(1) &&
                          (x->size(0) == ids.size(0) || x->size(0) == 1));
}

std::vector<std::int64_t> all_indices(const at::Tensor& x) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(x.numel()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

std::ptrdiff_t count_labels(const std::vector<std::int64_t>& labels) {
  return std::ssize(labels) - std::count(labels.begin(), labels.end(), kIgnoredLabel);
}

// `bounds` is int32 on the device of the batch. If it is undefined, the batch is on the CPU.
PackedBatch packed_of(TensorDict batch, std::vector<std::int64_t> lengths,
                      const at::Tensor& bounds) {
  at::Tensor starts;
  if (bounds.defined()) {
    starts = bounds.narrow(0, 0, std::ssize(lengths)).to(at::kLong);
  } else {
    std::vector<std::int64_t> first(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), first.begin(), std::int64_t{0});
    starts = tensor_of(first);
  }
  return {.batch = std::move(batch),
          .mask = ops::KeyMask::packed(std::move(lengths), bounds),
          .starts = std::move(starts)};
}

[[noreturn]] void throw_packed(const std::string& got, const std::string& expected) {
  throw DataError("models.packed-batch", {.what = str("a batch with ", kPackedRows),
                                          .got = got,
                                          .expected = expected,
                                          .hint = "DataCollatorWithFlattening makes such batches"});
}

// Refuses bounds that do not ascend from 0 to the number of tokens, before rows are allocated.
void check_bounds(std::span<const std::int64_t> bounds, std::int64_t tokens) {
  if (bounds.front() != 0 || bounds.back() != tokens)
    throw_packed(str("rows from ", bounds.front(), " to ", bounds.back()), str("0 to ", tokens));
  for (std::size_t row = 0; row + 1 < bounds.size(); ++row) {
    if (bounds[row] >= bounds[row + 1])
      throw_packed(str("a row from ", bounds[row], " to ", bounds[row + 1]), "at least 1 token");
  }
}

// `bounds` [rows + 1] are the indices where the rows begin, and the end. Copies them to the host
// unless the batch has such a copy.
PackedBatch packed_by_collator(const TensorDict& batch, const at::Tensor& bounds) {
  const at::Tensor* const ids = find(batch, "input_ids");
  if (!ids || ids->dim() != 2 || ids->size(0) != 1)
    throw_packed(ids ? "input_ids of shape " + shape_text(ids->sizes()) : "no input_ids",
                 "input_ids [1, tokens]");
  if (bounds.dim() != 1 || bounds.size(0) < 2)
    throw_packed("the shape " + shape_text(bounds.sizes()), "[rows + 1]");
  const at::Tensor* const on_host = find(batch, kPackedRowsOnHost);
  if (on_host && on_host->sizes() != bounds.sizes()) {
    throw_packed(str(kPackedRowsOnHost, " of shape ", shape_text(on_host->sizes())),
                 "the shape " + shape_text(bounds.sizes()));
  }
  const std::vector<std::int64_t> ends = numbers_of(on_host ? *on_host : bounds);
  check_bounds(ends, ids->size(1));
  TensorDict packed = batch;
  packed.erase(kPackedRows);
  packed.erase(kPackedRowsOnHost);
  packed.erase("attention_mask");
  std::vector<std::int64_t> lengths, positions;
  for (std::size_t row = 0; row + 1 < ends.size(); ++row) {
    lengths.push_back(ends[row + 1] - ends[row]);
    for (std::int64_t i = 0; i < lengths.back(); ++i) positions.push_back(i);
  }
  if (!find(batch, "position_ids"))
    packed["position_ids"] = tensor_of(positions).unsqueeze(0).to(ids->device());
  return packed_of(std::move(packed), std::move(lengths),
                   ids->device().is_cpu() ? at::Tensor() : bounds.to(ids->device(), at::kInt));
}

// The unmasked tokens of a batch: columns [1, tokens], and the labels of the rows if there are any.
struct TokenColumns {
  TensorDict columns;
  std::vector<std::int64_t> lengths;
};

// Returns nullopt for the reasons that PackedBatch::of() lists. A batch without padding has columns
// unless `needs_padding`.
std::optional<TokenColumns> token_columns(const TensorDict& batch,
                                          const PackedBatch::Tables& tables, bool needs_padding) {
  const at::Tensor *ids = find(batch, "input_ids"), *mask = find(batch, "attention_mask"),
                   *positions = find(batch, "position_ids"), *types = find(batch, "token_type_ids");
  if (!ids || !mask || !is_matrix_of_ids(*ids) || !is_matrix_of_ids(*mask)) return std::nullopt;
  if (mask->sizes() != ids->sizes() || ids->numel() == 0) return std::nullopt;
  if (!fits(positions, *ids) || !fits(types, *ids)) return std::nullopt;
  auto tokens = Tokens::of(*mask, needs_padding);
  if (!tokens) return std::nullopt;
  TensorDict packed;
  const auto add = [&](const char* name, const std::vector<std::int64_t>& own, std::int64_t rows) {
    packed[name] = tensor_of(own).unsqueeze(0);
    return are_in_table(own, rows);
  };
  const auto& indices = tokens->indices;
  const bool are_known =
      add("input_ids", values_at(*ids, indices), tables.words) &&
      add("position_ids",
          positions ? values_at(*positions, indices) : columns(indices, ids->size(1)),
          tables.positions) &&
      (!types || add("token_type_ids", values_at(*types, indices), tables.types));
  if (!are_known) return std::nullopt;
  if (const at::Tensor* const labels = find(batch, "labels")) {
    const bool are_token_labels = labels->sizes() == ids->sizes() && is_matrix_of_ids(*labels);
    const std::vector<std::int64_t> own = are_token_labels ? values_at(*labels, indices) : indices;
    if (are_token_labels &&
        count_labels(own) != count_labels(values_at(*labels, all_indices(*ids))))
      return std::nullopt;
    packed["labels"] = are_token_labels ? tensor_of(own).unsqueeze(0) : *labels;
  }
  return TokenColumns{.columns = std::move(packed), .lengths = std::move(tokens->lengths)};
}

// Moves the label after each token back to the token that it belongs to. The first token of each
// text gets -100. Returns nullopt if the last token of a text has a label after it.
std::optional<at::Tensor> unshifted_labels(const at::Tensor& after,
                                           const std::vector<std::int64_t>& lengths) {
  const at::Tensor given = after.contiguous();
  at::Tensor labels = at::empty(given.sizes(), at::kLong);
  const std::int64_t* from = given.const_data_ptr<std::int64_t>();
  std::int64_t* to = labels.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t length : lengths) {
    if (from[length - 1] != kIgnoredLabel) return std::nullopt;
    to[0] = kIgnoredLabel;
    std::copy(from, from + length - 1, to + 1);
    from += length;
    to += length;
  }
  return labels;
}

}  // namespace

std::optional<PackedBatch> PackedBatch::of(const TensorDict& batch, const Tables& tables) {
  if (const at::Tensor* const bounds = find(batch, kPackedRows))
    return packed_by_collator(batch, *bounds);
  auto tokens = token_columns(batch, tables, /*needs_padding=*/true);
  if (!tokens) return std::nullopt;
  return packed_of(std::move(tokens->columns), std::move(tokens->lengths), /*bounds=*/{});
}

TensorDict pack_rows(const TensorDict& batch, bool shifts_labels) {
  if (find(batch, kPackedRows)) return batch;
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  TensorDict given = batch;
  const at::Tensor *ids = find(batch, "input_ids"), *labels = find(batch, "labels");
  // A label belongs to the token before it. If that token is masked, the label would be lost.
  const bool shifts = shifts_labels && ids && labels && labels->sizes() == ids->sizes() &&
                      is_matrix_of_ids(*labels);
  if (shifts) given["labels"] = next_token_labels(labels->to(at::kLong), {});
  auto tokens = token_columns(given, {kAny, kAny, kAny}, /*needs_padding=*/false);
  if (!tokens) return batch;
  if (shifts) {
    const auto own = unshifted_labels(tokens->columns.at("labels"), tokens->lengths);
    if (!own) return batch;
    tokens->columns["labels"] = *own;
  }
  TensorDict packed = batch;
  packed.erase("attention_mask");
  for (auto& [name, column] : tokens->columns) packed[name] = column;
  packed[kPackedRows] = bounds_tensor(tokens->lengths);
  return packed;
}

at::Tensor next_token_labels(const at::Tensor& given, const std::vector<std::int64_t>& lengths) {
  const at::Tensor labels = given.contiguous();
  // A collator has set the first label of each text of a packed row to -100.
  if (!labels.device().is_cpu()) return shifted_labels(labels);
  at::Tensor after = at::empty_like(labels);
  const std::int64_t* const from = labels.const_data_ptr<std::int64_t>();
  std::int64_t* const to = after.mutable_data_ptr<std::int64_t>();
  const auto shift = [&](std::int64_t first, std::int64_t length) {
    for (std::int64_t i = first; i + 1 < first + length; ++i) to[i] = from[i + 1];
    if (length > 0) to[first + length - 1] = kIgnoredLabel;
  };
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    shift(first, length);
    first += length;
  }
  const std::int64_t length = labels.size(-1);
  for (; length > 0 && first < labels.numel(); first += length) shift(first, length);
  return after;
}

at::Tensor PackedBatch::first_tokens(const at::Tensor& hidden) const {
  return hidden.squeeze(0).index_select(0, starts);
}

}  // namespace hasten
