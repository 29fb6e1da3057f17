#include "trainer/rows.h"

#include <torch/torch.h>

#include <algorithm>
#include <vector>

namespace hasten {

RealRows real_rows(const Loader<TensorDict>& loader, const TensorDict& batch) {
  const std::int64_t rows = loader.rows_at_hand(), real = loader.real_rows_at_hand();
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
  const std::int64_t length = rows.dim() > 1 ? rows.size(1) : 0;
  const at::Tensor sizes = group.gather(at::tensor({rows.size(0), length}, at::kLong).view({1, 2}));
  const at::Tensor most = std::get<0>(sizes.max(0));
  auto shape = rows.sizes().vec();
  shape[0] = most[0].item<std::int64_t>();
  if (rows.dim() > 1) shape[1] = most[1].item<std::int64_t>();
  at::Tensor filled = rows;
  if (rows.sizes() != at::IntArrayRef(shape)) {
    filled = at::full(shape, -100, rows.options());
    at::Tensor place = filled.narrow(0, 0, rows.size(0));
    if (rows.dim() > 1) place = place.narrow(1, 0, length);
    place.copy_(rows);
  }
  const at::Tensor all = group.gather(filled);
  if ((sizes.select(1, 0) == shape[0]).all().item<bool>()) return all;
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < group.size(); ++rank)
    parts.push_back(all.narrow(0, rank * shape[0], sizes[rank][0].item<std::int64_t>()));
  return at::cat(parts);
}

}  // namespace hasten
