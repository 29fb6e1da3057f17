#include "prepare/gather_uneven_rows.h"

#include <torch/torch.h>

#include <vector>

namespace hasten {

std::optional<at::Tensor> gather_uneven_rows(const at::Tensor& rows, std::int64_t real,
                                             const Group& group) {
  const at::Tensor own = at::tensor({rows.size(0), real}, at::kLong);
  const at::Tensor sizes = group.gather(own).view({group.size(), 2});
  if ((sizes.select(1, 1) < 0).any().item<bool>()) return std::nullopt;
  const std::int64_t longest = sizes.select(1, 0).max().item<std::int64_t>();
  at::Tensor filled = rows;
  if (rows.size(0) < longest) {
    auto shape = rows.sizes().vec();
    shape[0] = longest - rows.size(0);
    filled = at::cat({rows, at::zeros(shape, rows.options())});
  }
  const at::Tensor all = group.gather(filled);
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < group.size(); ++rank)
    parts.push_back(all.narrow(0, rank * longest, sizes[rank][1].item<std::int64_t>()));
  return at::cat(parts);
}

}  // namespace hasten
