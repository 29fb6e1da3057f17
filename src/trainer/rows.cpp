#include "trainer/rows.h"

#include <torch/torch.h>

#include <algorithm>

namespace hasten {

namespace {

// Returns the batch with the first `kept` rows of every tensor that has `rows` rows.
AnyBatch narrow_batch(const AnyBatch& batch, std::int64_t rows, std::int64_t kept) {
  AnyBatch out = batch.copy();
  for_each_tensor(out, [&](at::Tensor& tensor) {
    const bool has_rows = tensor.defined() && tensor.dim() > 0 && tensor.size(0) == rows;
    if (has_rows) tensor = tensor.narrow(0, 0, kept);
  });
  return out;
}

}  // namespace

RealRows real_rows(const AnyBatch& batch, const BatchInfo& info) {
  const std::int64_t rows = info.rows, real = info.real_rows;
  const bool is_part = real > 0 && real < rows;
  return {.batch = is_part ? narrow_batch(batch, rows, real) : batch,
          .count = real,
          .rows = is_part ? real : rows,
          .first_rows = info.first_rows};
}

RealRows first_rows(const RealRows& rows, std::int64_t count) {
  if (count >= rows.rows) return rows;
  return {.batch = narrow_batch(rows.batch, rows.rows, count),
          .count = std::min(rows.count, count),
          .rows = count};
}

at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t count) {
  const bool all = !rows.defined() || rows.dim() == 0 || rows.size(0) <= count;
  return all ? rows : rows.narrow(0, 0, count);
}

}  // namespace hasten
