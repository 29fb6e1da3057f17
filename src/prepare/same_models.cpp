#include "prepare/same_models.h"

#include <torch/torch.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Tells contents apart, against accident and not against intent. Four lanes, so that it reads as
// fast as memory gives.
std::int64_t fingerprint(const void* data, std::size_t size) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  std::uint64_t lanes[4] = {kOdd, kOdd * 3, kOdd * 5, kOdd * 7};
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::size_t at = 0;
  for (; at + 32 <= size; at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * kOdd;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  std::uint64_t all = size;
  for (; at < size; ++at) all = (all ^ bytes[at]) * 0x100000001b3u;
  for (const std::uint64_t lane : lanes) all = (all ^ lane ^ (all >> 31)) * kOdd;
  return static_cast<std::int64_t>(all);
}

std::int64_t fingerprint(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  return fingerprint(bytes.data_ptr(), bytes.nbytes());
}

struct Named {
  std::string name;
  at::Tensor tensor;
};

std::vector<Named> tensors_of(const torch::nn::Module& module) {
  std::vector<Named> all;
  for (const auto& item : module.named_parameters()) all.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value()});
  return all;
}

std::string description(const Named& named) {
  std::string text = str(named.name, " ", c10::toString(named.tensor.scalar_type()), " [");
  for (const std::int64_t size : named.tensor.sizes())
    text += str(text.back() == '[' ? "" : ", ", size);
  return text + (named.tensor.requires_grad() ? "]" : "] without gradient");
}

[[noreturn]] void tell_difference(const std::string& own, const Group& group) {
  const std::vector<std::string> texts = group.gather_object(own);
  const auto first = split(texts[0], '\n');
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto other = split(texts[rank], '\n');
    std::size_t at = 0;
    while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
    throw UsageError(
        "prepare.models-differ",
        {.what =
             "the model that prepare() was given is another one on rank " + std::to_string(rank),
         .got = at < other.size() && !other[at].empty() ? other[at] : "nothing more",
         .expected = (at < first.size() && !first[at].empty() ? first[at] : "nothing more") +
                     ", as on rank 0",
         .hint = "prepare() the same models in the same order in every process"});
  }
  throw UsageError("prepare.models-differ", {.what = "the models of the processes differ"});
}

bool same_everywhere(std::int64_t number, const Group& group) {
  const at::Tensor all = group.gather(at::scalar_tensor(number, at::kLong));
  return (all == all[0]).all().item<bool>();
}

}  // namespace

void check_same_model(const torch::nn::Module& module, const Group& group) {
  const CallScope scope(group, "models compared by prepare()");
  std::string text;
  for (const Named& named : tensors_of(module)) text += description(named) + "\n";
  if (!same_everywhere(fingerprint(text.data(), text.size()), group)) tell_difference(text, group);
}

std::int64_t equalize_weights(torch::nn::Module& module, const Group& group) {
  const torch::NoGradGuard no_grad;
  const CallScope scope(group, "weights compared by prepare()");
  const std::vector<Named> tensors = tensors_of(module);
  if (tensors.empty()) return 0;
  at::Tensor own = at::empty({1, static_cast<std::int64_t>(tensors.size())}, at::kLong);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    own[0][static_cast<std::int64_t>(i)] = fingerprint(tensors[i].tensor);
  const at::Tensor all = group.gather(own);
  const at::Tensor same = (all == all[0].unsqueeze(0)).all(0);
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (same[static_cast<std::int64_t>(i)].item<bool>()) continue;
    const at::Tensor right = group.broadcast(tensors[i].tensor);
    if (group.rank() != 0) tensors[i].tensor.copy_(right);
    ++sent;
  }
  return sent;
}

}  // namespace hasten
