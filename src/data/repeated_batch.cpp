#include "data/repeated_batch.h"

#include <torch/torch.h>

#include <algorithm>
#include <typeinfo>
#include <utility>
#include <vector>

#include "data/static_packed_rows.h"
#include "hasten/base/text.h"
#include "hasten/data/detail/packed_rows.h"

namespace hasten {
namespace {

// True for the types of batches whose values are all in tensors.
bool consists_of_tensors(const std::type_info& batch) {
  return batch == typeid(TensorDict) || batch == typeid(at::Tensor) ||
         batch == typeid(std::pair<at::Tensor, at::Tensor>) ||
         batch == typeid(std::vector<at::Tensor>) ||
         batch == typeid(torch::data::Example<at::Tensor, at::Tensor>) ||
         batch == typeid(torch::data::Example<at::Tensor, torch::data::example::NoTarget>);
}

std::vector<at::Tensor*> tensors_in(AnyBatch& batch) {
  std::vector<at::Tensor*> all;
  for_each_tensor(batch, [&](at::Tensor& tensor) { all.push_back(&tensor); });
  return all;
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  return c10::str(c10::toString(tensor.scalar_type()), tensor.sizes(), " on ", tensor.device());
}

std::string batch_shape(AnyBatch batch) {
  std::string shape;
  if (const TensorDict* const columns = batch.get_if<TensorDict>()) {
    for (const auto& [name, tensor] : *columns) shape += name + " " + shape_text(tensor) + "; ";
    const at::Tensor bounds = int32_rows_on_host(*columns);
    if (bounds.defined()) shape += str("rows of at most ", row_limit(bounds), " tokens; ");
    return shape;
  }
  for (const at::Tensor* const tensor : tensors_in(batch)) shape += shape_text(*tensor) + "; ";
  return shape + c10::demangle(batch.type().name());
}

}  // namespace

std::string unrepeatable_batch(AnyBatch batch, const std::string& unknown_class) {
  if (!consists_of_tensors(batch.type())) {
    return str("batches of the type ", c10::demangle(batch.type().name()),
               ", which may have numbers of the host");
  }
  const TensorDict* const columns = batch.get_if<TensorDict>();
  if (columns != nullptr && columns->contains(kPackedRows)) {
    if (!unknown_class.empty()) {
      return str("packed batches, whose rows the class ", unknown_class,
                 " may take from host memory");
    }
    if (!int32_rows_on_host(*columns).defined())
      return "packed batches without int32 bounds of their rows in host memory";
  }
  // copy_() replaces the memory of such a tensor, which a graph would not notice.
  for (const at::Tensor* const tensor : tensors_in(batch)) {
    if (tensor->defined() && (tensor->layout() != at::kStrided || tensor->is_nested()))
      return "batches with a sparse or nested tensor";
  }
  return "";
}

std::string shape_of_step(const std::vector<AnyBatch>& micro_batches) {
  std::string shape;
  for (const AnyBatch& batch : micro_batches) shape += batch_shape(batch) + "| ";
  return shape;
}

std::int64_t size_of_step(const std::vector<AnyBatch>& micro_batches) {
  std::int64_t largest = 0;
  for (AnyBatch batch : micro_batches) {
    for (const at::Tensor* const tensor : tensors_in(batch)) {
      if (tensor->defined()) largest = std::max(largest, tensor->numel());
    }
  }
  return largest;
}

AnyBatch with_own_memory(const AnyBatch& batch) {
  AnyBatch made = batch.copy();
  for (at::Tensor* const tensor : tensors_in(made)) {
    if (tensor->defined()) *tensor = tensor->clone();
  }
  if (TensorDict* const columns = made.get_if<TensorDict>()) {
    const at::Tensor bounds = int32_rows_on_host(*columns);
    if (bounds.defined()) (*columns)[kPackedRowsOnHost] = longest_bounds(bounds);
  }
  return made;
}

void overwrite(AnyBatch to, AnyBatch from) {
  const torch::NoGradGuard no_grad;
  if (const TensorDict* const columns = from.get_if<TensorDict>()) {
    for (const auto& [name, tensor] : *columns) {
      // The graph has the longest row of its recording.
      if (tensor.defined() && name != kPackedRowsOnHost)
        to.get_if<TensorDict>()->at(name).copy_(tensor, /*non_blocking=*/true);
    }
    return;
  }
  const std::vector<at::Tensor*> targets = tensors_in(to), sources = tensors_in(from);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i]->defined()) targets[i]->copy_(*sources[i], /*non_blocking=*/true);
  }
}

}  // namespace hasten
