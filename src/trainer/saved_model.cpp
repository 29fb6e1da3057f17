#include "trainer/saved_model.h"

#include "hasten/formats/module_weights.h"
#include "hasten/models/lora.h"
#include "hasten/models/training_traits.h"

namespace hasten {

void save_model_files(const torch::nn::Module& module, const std::filesystem::path& folder) {
  if (has_lora(module)) return save_lora(module, folder);
  const TrainingTraits* const traits = traits_of(module);
  if (traits == nullptr || !traits->save_files(folder)) save_weights(module, folder);
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
