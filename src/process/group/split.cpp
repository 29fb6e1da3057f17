#include "hasten/process/detail/split.h"

#include <torch/torch.h>

#include <algorithm>

#include "hasten/base/error.h"

namespace hasten {

std::vector<std::int64_t> detail::part_indices(std::int64_t length, const ProcessState& process,
                                               bool apply_padding) {
  const std::int64_t each = length / process.num_processes, extras = length % process.num_processes;
  const std::int64_t rank = process.process_index, first = rank * each + std::min(rank, extras);
  std::vector<std::int64_t> part;
  for (std::int64_t at = first; at < first + each + (rank < extras ? 1 : 0); ++at)
    part.push_back(at);
  const bool is_short = extras > 0 && rank >= extras;
  if (apply_padding && is_short) part.push_back(part.empty() ? length - 1 : part.back());
  return part;
}

void detail::throw_uneven_lists() {
  throw UsageError(
      "process.split",
      {.what = "split_between_processes of a map whose lists have unequal lengths",
       .hint = "entries with the same index belong together, so give all lists the same length"});
}

at::Tensor split_between_processes(const at::Tensor& inputs, const ProcessState& process,
                                   bool apply_padding) {
  const auto part = detail::part_indices(inputs.size(0), process, apply_padding);
  return inputs.index_select(
      0, at::tensor(part, at::TensorOptions(at::kLong).device(inputs.device())));
}

}  // namespace hasten
