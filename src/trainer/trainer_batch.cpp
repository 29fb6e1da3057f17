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
  ModelOutput out;
  if (const auto loss = outputs.find("loss"); loss != outputs.end()) out.loss = loss->second;
  if (const auto logits = outputs.find("logits"); logits != outputs.end()) {
    out.logits = logits->second;
  } else if (outputs.size() == (out.loss.defined() ? 2 : 1)) {
    for (const auto& [name, tensor] : outputs)
      if (name != "loss") out.logits = tensor;
  }
  return out;
}

void throw_model_type(const torch::nn::Module& given, const std::type_info& expected) {
  throw UsageError("trainer.model-type", {.what = "the module of the Trainer",
                                          .got = c10::demangle(typeid(given).name()),
                                          .expected = c10::demangle(expected.name()),
                                          .hint = "compute_loss takes another class of module"});
}

}  // namespace hasten::detail
