#include "prepare/metrics.h"

#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/accelerator_state.h"
#include "prepare/gather_uneven_rows.h"

namespace hasten {
namespace {

// Returns how many of the tensor's entries are real, or -1 if unknown.
std::int64_t real_entry_count(const at::Tensor& entries, const BatchInfo& batch) {
  if (batch.real_rows == 0) return 0;  // none count, whatever the entries are
  if (batch.real_rows < 0 || batch.real_rows == batch.rows) return entries.size(0);
  return entries.size(0) == batch.rows ? batch.real_rows : -1;
}

[[noreturn]] void throw_not_row_wise(const at::Tensor& tensor, const BatchInfo* batch) {
  throw UsageError(
      "prepare.not-rows",
      {.what = "gather_for_metrics in a padded last step",
       .got = str("a tensor of ", tensor.dim() == 0 ? 1 : tensor.size(0), " entries"),
       .expected = batch == nullptr
                       ? "one entry per row"
                       : str(batch->rows, ", one per row, of which ", batch->real_rows, " count"),
       .hint = "call gather() for a tensor without rows, such as a mean loss, or reduce the tensor "
               "to one entry per row first"});
}

// Returns the real rows of a batch that was padded for a device that needs static shapes. It slices
// on the CPU, because the device would need a new program for each different number of rows.
at::Tensor without_padding_rows(const at::Tensor& entries, const BatchInfo* batch) {
  const std::int64_t real = batch == nullptr ? -1 : real_entry_count(entries, *batch);
  if (real < 0 || real >= entries.size(0)) return entries;
  return entries.to(at::kCPU).narrow(0, 0, real).to(entries.device());
}

// Describes the tensor for a process without data: whether it is on the CPU, its type, and its
// sizes except the first (the rows).
std::string description_of(const at::Tensor& entries) {
  std::string text = str(entries.is_cpu() ? 1 : 0, " ", static_cast<int>(entries.scalar_type()));
  for (const std::int64_t size : entries.sizes().slice(1)) text += str(" ", size);
  return text;
}

// Returns a tensor that has this description and no rows.
at::Tensor tensor_without_rows(const std::string& description, at::Device device) {
  std::istringstream in(description);
  int on_cpu = 0, type = 0;
  in >> on_cpu >> type;
  std::vector<std::int64_t> sizes = {0};
  for (std::int64_t size = 0; in >> size;) sizes.push_back(size);
  return at::empty(sizes, at::TensorOptions(static_cast<at::ScalarType>(type))
                              .device(on_cpu != 0 ? at::Device(at::kCPU) : device));
}

}  // namespace

at::Tensor gather_for_metrics(const at::Tensor& tensor, AcceleratorState& state) {
  const Group& group = state.group;
  at::Tensor entries = tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  if (device_of(state.process.device).traits().gathers_bf16_as_float &&
      entries.scalar_type() == at::kBFloat16)
    entries = entries.to(at::kFloat);
  const BatchInfo* const batch = state.loaders.current();
  if (group.size() == 1) return without_padding_rows(entries, batch);
  const std::int64_t describing_rank = state.gradients.announcer().announce_rows();
  // A step that cannot be padded is full in every process that has data.
  const bool may_be_filled = batch != nullptr && batch->may_be_padded;
  if (describing_rank < 0 && !may_be_filled) return group.gather(entries);
  if (describing_rank >= 0) group.broadcast_object(description_of(entries), describing_rank);
  const std::int64_t real = may_be_filled ? real_entry_count(entries, *batch) : entries.size(0);
  const auto all = gather_uneven_rows(entries, real, group);
  if (!all) throw_not_row_wise(tensor, batch);
  return *all;
}

void gather_without_rows(const AcceleratorState& state, std::int64_t from) {
  const std::string description = state.group.broadcast_object("", from);
  const auto all =
      gather_uneven_rows(tensor_without_rows(description, state.process.device), 0, state.group);
  if (!all) throw_not_row_wise(at::empty({0}), nullptr);
}

}  // namespace hasten
