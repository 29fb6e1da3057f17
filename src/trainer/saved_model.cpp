#include "trainer/saved_model.h"

#include "hasten/formats/module_weights.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

void save_model_files(const torch::nn::Module& module, const std::filesystem::path& folder) {
  if (const auto* const pretrained = dynamic_cast<const PreTrainedModel*>(&module))
    pretrained->save_pretrained(folder);
  else
    save_weights(module, folder);
}

std::vector<std::string> load_model_files(torch::nn::Module& module,
                                          const std::filesystem::path& folder) {
  if (auto* const pretrained = dynamic_cast<PreTrainedModel*>(&module))
    return pretrained->load_weights(load_weights(folder), folder.string()).missing;
  return load_weights(module, folder, {.strict = false}).missing;
}

}  // namespace hasten
