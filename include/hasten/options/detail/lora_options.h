// File: hasten/options/detail/lora_options.h
// Describes a low-rank adapter: the options of add_lora (hasten/models/lora.h), with the names and
// defaults of PEFT's LoraConfig.
//
//   const LoraOptions options{.r = 8, .alpha = 16, .target_modules = {"query", "value"}};
//
// Needs no torch. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/options/detail/names.h"

namespace hasten {

// The biases that are trained with the adapter: none, all biases of the model, or the biases of the
// adapted layers.
enum class LoraBias { none, all, lora_only };

struct LoraOptions {
  std::int64_t r = 8;  // the rank
  double alpha = 8;    // PEFT's lora_alpha
  // The share of the inputs of A that training sets to zero.
  double dropout = 0;
  // The linear layers that are adapted. Each entry is the path of a layer, its last parts ("query",
  // "attention.output.dense"), an ECMAScript expression that matches the whole path
  // (".*\\.[0-3]\\..*query"), or "all-linear", which selects all layers except the layers of
  // modules_to_save and the output layer of a language model. If empty: query and value, or the
  // corresponding layers of GPT-2 and Llama.
  std::vector<std::string> target_modules = {};
  // Modules that are trained as a whole and saved with the adapter, such as a new head: paths or
  // their last parts. For the task types SEQ_CLS and TOKEN_CLS the modules classifier and score are
  // added.
  std::vector<std::string> modules_to_save = {};
  LoraBias bias = LoraBias::none;
  // Scales the adapter by alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023).
  bool use_rslora = false;
  // Values for the saved file: PEFT's name of the task (SEQ_CLS, TOKEN_CLS, CAUSAL_LM), and the
  // model that was adapted.
  std::string task_type = {}, base_model = {};
};

template <>
struct Names<LoraBias> {
  static constexpr std::string_view text[] = {"none", "all", "lora_only"};
};

}  // namespace hasten
