#include "hasten/prepare/detail/compute_loss.h"

#include <c10/util/Type.h>

#include "hasten/base/error.h"

namespace hasten::detail {

ModelOutput output_of(const TensorDict& outputs) {
  ModelOutput out{.others = outputs};
  const auto take_other = [&](const std::string& name) {
    const auto found = out.others.extract(name);
    return found.empty() ? at::Tensor() : found.mapped();
  };
  out.loss = take_other("loss");
  out.logits = take_other("logits");
  if (!out.logits.defined() && out.others.size() == 1)
    out.logits = take_other(out.others.begin()->first);
  return out;
}

void throw_model_type(const torch::nn::Module& given, const std::type_info& expected) {
  throw UsageError("prepare.model-type", {.what = "the module whose loss is computed",
                                          .got = c10::demangle(typeid(given).name()),
                                          .expected = c10::demangle(expected.name()),
                                          .hint = "compute_loss takes another class of module"});
}

}  // namespace hasten::detail
