#include "prepare/model_consistency.h"

#include <torch/torch.h>

#include <string>

#include "formats/module_tensors.h"
#include "hasten/base/text.h"
#include "prepare/byte_tensor.h"
#include "process/consensus/comparison.h"

namespace hasten {
namespace {

std::int64_t fingerprint_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  return fingerprint(bytes.data_ptr(), bytes.nbytes());
}

// Returns the tensor of rank `from`. A collective.
at::Tensor broadcast_any_type(const at::Tensor& tensor, const Group& group, std::int64_t from) {
  if (is_sendable(tensor.scalar_type())) return group.broadcast(tensor, from);
  return tensor_of_bytes(group.broadcast(bytes_of(tensor), from), tensor);
}

std::string description(const std::string& name, const at::Tensor& tensor) {
  return str(name, " ", c10::toString(tensor.scalar_type()), " ", shape_text(tensor.sizes()),
             tensor.requires_grad() ? "" : " without gradient");
}

}  // namespace

void check_same_model(const torch::nn::Module& module, const Group& group) {
  const CallScope scope(group, "models compared by prepare()");
  std::string text;
  for (const auto& [name, tensor] : registered_tensors(module))
    text += description(name, tensor) + "\n";
  check_same_text(text, group,
                  {.code = "prepare.models-differ",
                   .what = "the model passed to prepare()",
                   .hint = "prepare() the same models in the same order in every process"});
}

std::int64_t equalize_weights(torch::nn::Module& module, const Group& group, std::int64_t from) {
  const torch::NoGradGuard no_grad;
  const CallScope scope(group, "weights compared by prepare()");
  const NamedTensors tensors = registered_tensors(module);
  if (tensors.empty()) return 0;
  at::Tensor own = at::empty({1, static_cast<std::int64_t>(tensors.size())}, at::kLong);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    own[0][static_cast<std::int64_t>(i)] = fingerprint_of(tensors[i].second);
  const at::Tensor all = group.gather(own);
  const at::Tensor same = (all == all[from].unsqueeze(0)).all(0);
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (same[static_cast<std::int64_t>(i)].item<bool>()) continue;
    const at::Tensor& tensor = tensors[i].second;
    const at::Tensor right = broadcast_any_type(tensor, group, from);
    if (group.rank() != from) tensor.copy_(right);
    ++sent;
  }
  return sent;
}

}  // namespace hasten
