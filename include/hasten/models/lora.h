// File: hasten/models/lora.h
// Adapters of low rank (LoRA, Hu et al. 2021): the weights W of chosen linear layers are frozen,
// and each layer computes x W^T + scale dropout(x) A^T B^T with two small trained matrices A and B.
// Files have the format of PEFT.
//
//   LoadedModel loaded = load_model("google-bert/bert-base-uncased", {.num_labels = 10});
//   add_lora(*loaded.model, {.r = 8,
//                            .alpha = 16,
//                            .target_modules = {"query", "value"},
//                            .modules_to_save = {"classifier"}});
//   // Train it: optimizers and prepare() get loaded.model->parameters() as usual.
//   save_lora(*loaded.model, "adapter");    // PeftModel.from_pretrained(base, "adapter") reads it
//   load_lora(*loaded.model, "adapter");    // or into another model: load_lora adds the adapters
//   merge_lora(*loaded.model);              // from now on W + scale B A, without additional time
//
// Any module: its layers may be torch::nn::Linear, hasten's, those of an exported program (.pt2),
// or your own (hasten/models/linear_layers.h). The module keeps its class, its names and its code;
// each adapted layer gets the parameters `lora_A.weight` [r, in] and `lora_B.weight` [out, r] below
// it. A is initialized as PyTorch's Linear and B with zeros, from LibTorch's default generator, so
// the adapted model begins as the model itself. They are float even if W has 16 bits.
//
// After add_lora and load_lora only A, B, the modules_to_save and the chosen biases require
// gradients, so gradients, exchanges between processes and optimizer states exist only for them.
// Create the optimizer, prepare() the module and take clones afterwards. modules_to_save are
// trained in place; PEFT trains a copy of them.
//
// A prepared or moved module keeps its adapters. Each A and B takes part wherever the layer's
// weight is the right operand of linear, matmul, mm or addmm. Products with the weight as the left
// operand, or with a copy of it, do not use the adapter.
//
// The Trainer saves the adapter in place of the model (docs/techniques.md).
//
// Throws UsageError "models.lora-options", "models.lora-target", "models.lora-twice",
// "models.no-lora", "models.lora-merged"; DataError "models.lora-file", and what reading files
// throws. Thread rule: no other thread uses the module meanwhile.
// Source: arXiv 2106.09685; PEFT 0.21 (peft/tuners/lora, peft/utils/save_and_load.py).
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hasten/base/export.h"
#include "hasten/options/lora_options.h"

namespace hasten {

// Returns the paths of the layers that are adapted now.
HASTEN_API std::vector<std::string> add_lora(torch::nn::Module& module, const LoraOptions& options);

// True if layers of the module are adapted.
HASTEN_API bool has_lora(const torch::nn::Module& module);
// The options of the adapters, with the paths of all layers as target_modules if they were
// "all-linear". Throws if the module has none.
HASTEN_API const LoraOptions& lora_options(const torch::nn::Module& module);

// Adds scale B A to the weights and switches the adapters off, or takes it away again, up to
// rounding. Neither changes what the module computes, apart from the dropout.
HASTEN_API void merge_lora(torch::nn::Module& module);
HASTEN_API void unmerge_lora(torch::nn::Module& module);
// Removes the adapters with their parameters. What was merged stays in the weights. Parameters keep
// their requires_grad.
HASTEN_API void remove_lora(torch::nn::Module& module);

// Writes adapter_config.json and adapter_model.safetensors.
HASTEN_API void save_lora(const torch::nn::Module& module, const std::filesystem::path& folder);
// Reads a folder of save_lora or PEFT. Reads only values if the module has adapters, which must
// have the scale of the file. Otherwise adds adapters. If the folder does not fit, the module stays
// as it is.
HASTEN_API void load_lora(torch::nn::Module& module, const std::filesystem::path& folder);

}  // namespace hasten
