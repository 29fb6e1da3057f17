#include "trainer/saved_model.h"

#include "formats/module_tensors.h"
#include "formats/safetensors_checks.h"
#include "hasten/formats/module_weights.h"
#include "hasten/models/lora.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/models/training_traits.h"

namespace hasten {

void save_model_files(const torch::nn::Module& module, const std::filesystem::path& folder) {
  if (has_lora(module)) return save_lora(module, folder);
  const TrainingTraits* const traits = traits_of(module);
  if (traits == nullptr || !traits->save_files(folder)) save_weights(module, folder);
}

void check_model_files(const torch::nn::Module& module, const std::string& file) {
  if (has_lora(module)) return;  // the file has only the adapters, which are dense
  if (const auto* const model = dynamic_cast<const PreTrainedModel*>(&module)) {
    detail::check_can_be_written(model->state_dict(), file);
  } else if (traits_of(module) == nullptr) {
    detail::check_can_be_written(tensors_of(module).tensors, file);
  }
}

std::vector<std::string> load_model_files(torch::nn::Module& module,
                                          const std::filesystem::path& folder) {
  if (has_lora(module)) {
    load_lora(module, folder);
    return {};
  }
  if (TrainingTraits* const traits = traits_of(module)) {
    if (auto missing = traits->load_files(folder)) return *std::move(missing);
  }
  return load_weights(module, folder, {.strict = false}).missing;
}

}  // namespace hasten
