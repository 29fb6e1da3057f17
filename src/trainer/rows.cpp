#include "trainer/rows.h"

#include <torch/torch.h>

#include <algorithm>

#include "data/padding.h"
#include "prepare/gather_counted.h"

namespace hasten {

RealRows real_rows(const TensorDict& batch, const BatchInfo& info) {
  const std::int64_t rows = info.rows, real = info.real_rows;
  if (rows == real) return {.batch = batch, .count = real};
  TensorDict kept;
  for (const auto& [name, tensor] : batch) {
    const bool has_rows = tensor.dim() > 0 && tensor.size(0) == rows;
    kept[name] = has_rows ? tensor.narrow(0, 0, std::max<std::int64_t>(real, 1)) : tensor;
  }
  return {.batch = std::move(kept), .count = real};
}

at::Tensor counted(const at::Tensor& rows, std::int64_t count) {
  const bool all = !rows.defined() || rows.dim() == 0 || rows.size(0) <= count;
  return all ? rows : rows.narrow(0, 0, count);
}

at::Tensor gather_rows(const Group& group, const at::Tensor& rows) {
  if (group.size() == 1) return rows;
  return *gather_counted(group.pad_across_processes(rows, 1, kIgnoredLabel), rows.size(0), group);
}

}  // namespace hasten
