#include "models/packed_batch.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "data/padding.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

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

// The unmasked tokens: their indices in [rows, length] and the number in each row. of() returns
// nullopt if none is masked, or a row does not begin with an unmasked one.
struct Tokens {
  std::vector<std::int64_t> indices, lengths;

  static std::optional<Tokens> of(const at::Tensor& attention_mask) {
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
    if (tokens.indices.empty() || std::ssize(tokens.indices) == mask.numel()) return std::nullopt;
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

PackedBatch packed_of(TensorDict batch, std::vector<std::int64_t> lengths) {
  std::vector<std::int64_t> starts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    starts.push_back(start);
    start += length;
  }
  const at::Device device = batch.at("input_ids").device();
  return {.batch = std::move(batch),
          .mask = ops::KeyMask::packed(std::move(lengths)),
          .starts = tensor_of(starts).to(device)};
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

// `bounds` [rows + 1] are the indices where the rows begin, and the end. Copies them to the host.
PackedBatch packed_by_collator(const TensorDict& batch, const at::Tensor& bounds) {
  const at::Tensor* const ids = find(batch, "input_ids");
  if (!ids || ids->dim() != 2 || ids->size(0) != 1)
    throw_packed(ids ? "input_ids of shape " + shape_text(ids->sizes()) : "no input_ids",
                 "input_ids [1, tokens]");
  if (bounds.dim() != 1 || bounds.size(0) < 2)
    throw_packed("the shape " + shape_text(bounds.sizes()), "[rows + 1]");
  const at::Tensor ends = bounds.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* const at = ends.const_data_ptr<std::int64_t>();
  check_bounds({at, static_cast<std::size_t>(ends.numel())}, ids->size(1));
  TensorDict packed = batch;
  packed.erase(kPackedRows);
  packed.erase("attention_mask");
  std::vector<std::int64_t> lengths, positions;
  for (std::int64_t row = 0; row + 1 < ends.numel(); ++row) {
    lengths.push_back(at[row + 1] - at[row]);
    for (std::int64_t i = 0; i < lengths.back(); ++i) positions.push_back(i);
  }
  if (!find(batch, "position_ids"))
    packed["position_ids"] = tensor_of(positions).unsqueeze(0).to(ids->device());
  return packed_of(std::move(packed), std::move(lengths));
}

}  // namespace

std::optional<PackedBatch> PackedBatch::of(const TensorDict& batch, const Tables& tables) {
  if (const at::Tensor* const bounds = find(batch, kPackedRows))
    return packed_by_collator(batch, *bounds);
  const at::Tensor *ids = find(batch, "input_ids"), *mask = find(batch, "attention_mask"),
                   *positions = find(batch, "position_ids"), *types = find(batch, "token_type_ids");
  if (!ids || !mask || !is_matrix_of_ids(*ids) || !is_matrix_of_ids(*mask)) return std::nullopt;
  if (mask->sizes() != ids->sizes() || ids->numel() == 0) return std::nullopt;
  if (!fits(positions, *ids) || !fits(types, *ids)) return std::nullopt;
  auto tokens = Tokens::of(*mask);
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
  return packed_of(std::move(packed), std::move(tokens->lengths));
}

at::Tensor PackedBatch::first_tokens(const at::Tensor& hidden) const {
  return hidden.squeeze(0).index_select(0, starts);
}

}  // namespace hasten
