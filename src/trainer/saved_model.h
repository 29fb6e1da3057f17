// File: trainer/saved_model.h (internal)
// The model in a checkpoint's folder: its adapters if it has some (hasten/models/lora.h), the files
// that the module writes itself (TrainingTraits), or else its weights
// (hasten/formats/module_weights.h).
//
//   check_model_files(*model, "a checkpoint in out");   // before the first step
//   save_model_files(*model, "out/checkpoint-10");
//   const std::vector<std::string> missing = load_model_files(*model, "out/checkpoint-10");
//
// Throws what saving and loading weights throws. Thread rule: that of the module.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hasten {

void save_model_files(const torch::nn::Module& module, const std::filesystem::path& folder);

// Throws UsageError "safetensors.*" if the types, the layouts or the memory of the module's tensors
// would let save_model_files fail. Does not check adapters, and modules other than PreTrainedModel
// that derive from TrainingTraits, because these may write files of their own. `file` is used in
// the message.
void check_model_files(const torch::nn::Module& module, const std::string& file);

// Copies the folder's weights into the module. Returns the names that the folder lacks; these
// weights keep their values.
std::vector<std::string> load_model_files(torch::nn::Module& module,
                                          const std::filesystem::path& folder);

}  // namespace hasten
