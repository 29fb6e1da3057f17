#include "hasten/formats/detail/tensor_dict.h"

#include <vector>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

const at::Tensor& tensor_at(const TensorDict& tensors, const std::string& name) {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, tensor] : tensors) names.push_back(key);
  const std::string hint = did_you_mean(nearest(name, names), "", in_quotes);
  if (names.size() > 8) names = {names[0], names[1], names[2], "...", names.back()};
  throw DataError("data.missing-tensor", {.what = "there is no tensor \"" + name + "\"",
                                          .got = "[" + join(names, ", ") + "]",
                                          .hint = hint});
}

}  // namespace hasten
