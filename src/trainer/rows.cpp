#include "trainer/rows.h"

#include <torch/torch.h>

#include <algorithm>

namespace hasten {

RealRows real_rows(const TrainerBatch& batch, const BatchInfo& info) {
  const std::int64_t rows = info.rows, real = info.real_rows;
  if (rows == real) return {.batch = batch, .count = real};
  TrainerBatch kept = batch.copy();
  for_each_tensor(kept, [&](at::Tensor& tensor) {
    const bool has_rows = tensor.defined() && tensor.dim() > 0 && tensor.size(0) == rows;
    if (has_rows) tensor = tensor.narrow(0, 0, std::max<std::int64_t>(real, 1));
  });
  return {.batch = std::move(kept), .count = real};
}

at::Tensor counted(const at::Tensor& rows, std::int64_t count) {
  const bool all = !rows.defined() || rows.dim() == 0 || rows.size(0) <= count;
  return all ? rows : rows.narrow(0, 0, count);
}

}  // namespace hasten
