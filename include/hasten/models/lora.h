// File: hasten/models/lora.h
// Low-rank adapters (LoRA, Hu et al. 2021). The weights W of the chosen linear layers are frozen,
// and each layer computes x W^T + scale dropout(x) A^T B^T with two small trained matrices A and B.
// Files have PEFT's format.
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
// Works for any module. Its layers may be torch::nn::Linear, hasten's, the layers of an exported
// program (.pt2), or your own (hasten/models/linear_layers.h). The module keeps its class, its
// names and its code; each adapted layer gets the parameters `lora_A.weight` [r, in] and
// `lora_B.weight` [out, r] below it. A is initialized like PyTorch's Linear, from LibTorch's
// default generator, and B with zeros, so at first the adapted model computes the same as the
// original. Both are float even if W has 16 bits.
//
// After add_lora and load_lora only A, B, the modules_to_save and the chosen biases require
// gradients, so gradients, exchanges between processes and optimizer states exist only for them.
// Create the optimizer, call prepare() and clone the module only afterwards. modules_to_save are
// trained in place; PEFT trains a copy of them.
//
// A prepared or moved module keeps its adapters. A and B are used in every linear, matmul, mm or
// addmm that has the layer's weight as its right operand. Products with the weight as the left
// operand, or with a copy of it, do not use the adapter.
//
// The Trainer saves the adapter in place of the model (docs/techniques.md).
//
// Throws UsageError "models.lora-options", "models.lora-target", "models.lora-twice",
// "models.no-lora", "models.lora-merged"; DataError "models.lora-file", and the errors of reading
// files. Thread rule: no other thread may use the module during a call.
// Source: arXiv 2106.09685; PEFT 0.21 (peft/tuners/lora, peft/utils/save_and_load.py).
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/lora_options.h"

namespace hasten {

// Adds adapters, and returns the paths of the adapted layers.
HASTEN_API std::vector<std::string> add_lora(torch::nn::Module& module, const LoraOptions& options);

// True if layers of the module are adapted.
HASTEN_API bool has_lora(const torch::nn::Module& module);
// Returns the options of the adapters. If target_modules was "all-linear", it contains the paths of
// all adapted layers. Throws if the module has no adapters.
HASTEN_API const LoraOptions& lora_options(const torch::nn::Module& module);

// merge_lora adds scale B A to the weights and switches the adapters off; unmerge_lora reverts
// this, up to rounding. Neither changes the results of the module, except that merged adapters have
// no dropout.
HASTEN_API void merge_lora(torch::nn::Module& module);
HASTEN_API void unmerge_lora(torch::nn::Module& module);
// Removes the adapters with their parameters. Merged adapters stay in the weights. Parameters keep
// their requires_grad.
HASTEN_API void remove_lora(torch::nn::Module& module);

// Writes adapter_config.json and adapter_model.safetensors.
HASTEN_API void save_lora(const torch::nn::Module& module, const std::filesystem::path& folder);
// Reads a folder of save_lora or PEFT. If the module already has adapters, only their values are
// read, and their scale must equal the scale in the file. Otherwise adapters are added. If the
// folder does not fit, the module stays unchanged.
HASTEN_API void load_lora(torch::nn::Module& module, const std::filesystem::path& folder);

}  // namespace hasten
