#include "hasten/trainer/trainer_batch.h"

#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include "hasten/base/error.h"
#include "hasten/trainer/compute_loss.h"

namespace hasten::detail {

void throw_batch_type(const std::type_info& given, const std::type_info& expected) {
  throw UsageError("trainer.batch-type",
                   {.what = "a batch",
                    .got = c10::demangle(given.name()),
                    .expected = c10::demangle(expected.name()),
                    .hint = "the dataset's collator must return the type that the model's "
                            "forward(), compute_loss and labels take"});
}

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
  throw UsageError("trainer.model-type", {.what = "the module of the Trainer",
                                          .got = c10::demangle(typeid(given).name()),
                                          .expected = c10::demangle(expected.name()),
                                          .hint = "compute_loss takes another class of module"});
}

}  // namespace hasten::detail
