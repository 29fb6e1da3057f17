#include "hasten/prepare/metrics.h"

#include <torch/torch.h>

#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// How many of the tensor's entries are real; -1: it cannot be said.
std::int64_t real_entries(const at::Tensor& entries, const LoaderProgress& batch) {
  if (batch.rows < 0 || batch.real_rows == batch.rows) return entries.size(0);
  if (batch.real_rows == 0 && entries.size(0) == 0) return 0;
  return entries.size(0) == batch.rows ? batch.real_rows : -1;
}

[[noreturn]] void throw_not_rows(const at::Tensor& tensor, const LoaderProgress& batch) {
  throw UsageError(
      "prepare.not-rows",
      {.what = "gather_for_metrics in a step that is filled up",
       .got = str("a tensor of ", tensor.dim() == 0 ? 1 : tensor.size(0), " entries here"),
       .expected = str("one entry a row, ", batch.rows, ", of which ", batch.real_rows, " count"),
       .hint = "gather() takes what is not made of rows, such as a mean loss; or add up over the "
               "rows first"});
}

}  // namespace

at::Tensor gather_for_metrics(const at::Tensor& tensor, const Step& step) {
  const Group& group = step.group;
  const at::Tensor entries = tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  if (group.size() == 1) return entries;
  const LoaderProgress* const batch = step.loaders.empty() ? nullptr : step.loaders.back();
  // Steps before the last are full in every process.
  if (batch == nullptr || !batch->at_last_batch) return group.gather(entries);
  const at::Tensor own = at::tensor({entries.size(0), real_entries(entries, *batch)}, at::kLong);
  const at::Tensor sizes = group.gather(own).view({group.size(), 2}).cpu();
  if ((sizes.select(1, 1) < 0).any().item<bool>()) throw_not_rows(tensor, *batch);
  const at::Tensor all = group.gather(group.pad_across_processes(entries));
  const std::int64_t longest = sizes.select(1, 0).max().item<std::int64_t>();
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < group.size(); ++rank)
    parts.push_back(all.narrow(0, rank * longest, sizes[rank][1].item<std::int64_t>()));
  return at::cat(parts);
}

}  // namespace hasten
