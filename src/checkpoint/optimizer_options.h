// File: checkpoint/optimizer_options.h (internal)
// Converts the options of an optimizer's groups (learning rates, betas and so on) to JSON and back,
// for hasten's optimizers and all of LibTorch's.
//
//   const nlohmann::json saved = options_of(optimizer);   // [{"lr": 0.001, ...}, ...]
//   check_options(optimizer, saved, "accelerator_state.json");
//   set_options(optimizer, saved);
//
// Doubles keep every bit. check_options throws DataError "checkpoint.optimizer-options" if the
// saved options belong to a different kind of optimizer or to a different number of groups.
// options_of throws UsageError "checkpoint.unknown-optimizer". Thread rule: the same as for the
// optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <nlohmann/json.hpp>
#include <string>

namespace hasten {

nlohmann::json options_of(torch::optim::Optimizer& optimizer);
void check_options(torch::optim::Optimizer& optimizer, const nlohmann::json& saved,
                   const std::string& file);
void set_options(torch::optim::Optimizer& optimizer, const nlohmann::json& saved);
// True for the options of hasten::AdamW that neither earlier versions nor PyTorch's AdamW have.
// Saved options may lack them.
bool is_added_option(const std::string& name);

}  // namespace hasten
