#include "prepare/same_models.h"

#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "process/consensus/comparison.h"

namespace hasten {
namespace {

std::int64_t fingerprint_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  return fingerprint(bytes.data_ptr(), bytes.nbytes());
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  for (const auto& item : module.named_parameters()) all.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value()});
  return all;
}

std::string description(const NamedTensor& named) {
  std::string text = str(named.name, " ", c10::toString(named.tensor.scalar_type()), " [");
  for (const std::int64_t size : named.tensor.sizes())
    text += str(text.back() == '[' ? "" : ", ", size);
  return text + (named.tensor.requires_grad() ? "]" : "] without gradient");
}

}  // namespace

void check_same_model(const torch::nn::Module& module, const Group& group) {
  const CallScope scope(group, "models compared by prepare()");
  std::string text;
  for (const NamedTensor& named : tensors_of(module)) text += description(named) + "\n";
  check_same_text(text, group,
                  {.code = "prepare.models-differ",
                   .what = "the model passed to prepare()",
                   .hint = "prepare() the same models in the same order in every process"});
}

std::int64_t equalize_weights(torch::nn::Module& module, const Group& group, std::int64_t from) {
  const torch::NoGradGuard no_grad;
  const CallScope scope(group, "weights compared by prepare()");
  const std::vector<NamedTensor> tensors = tensors_of(module);
  if (tensors.empty()) return 0;
  at::Tensor own = at::empty({1, static_cast<std::int64_t>(tensors.size())}, at::kLong);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    own[0][static_cast<std::int64_t>(i)] = fingerprint_of(tensors[i].tensor);
  const at::Tensor all = group.gather(own);
  const at::Tensor same = (all == all[from].unsqueeze(0)).all(0);
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (same[static_cast<std::int64_t>(i)].item<bool>()) continue;
    const at::Tensor right = group.broadcast(tensors[i].tensor, from);
    if (group.rank() != from) tensors[i].tensor.copy_(right);
    ++sent;
  }
  return sent;
}

}  // namespace hasten
