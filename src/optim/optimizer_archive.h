// File: optim/optimizer_archive.h (internal)
// Reads an optimizer from an archive in the layout of torch::optim::serialize.
//
//   read_optimizer<ParamState>(archive, *this, "Lion", [](const auto& options) { check(options); });
//
// Unlike LibTorch's function it changes nothing if it refuses the archive, and a parameter that is
// listed twice (a tied weight) keeps its state. Parameters without a state in the archive have none
// afterwards. Throws DataError "optim.group-count" and "optim.parameter-key", and the exceptions of
// `check_options`. Thread rule: that of the optimizer.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace hasten {

using SavedOptimizerStates =
    ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;
using OptionsCheck = std::function<void(const torch::optim::OptimizerOptions&)>;

// Reads the address that a parameter had when it was saved. The archive uses it as the parameter's
// name.
void* saved_address(const std::string& key, const char* optimizer);

// Sets the states of the optimizer, which have the saved addresses of the parameters as keys, and
// reads the options from the archive.
void read_groups(torch::serialize::InputArchive& archive, torch::optim::Optimizer& optimizer,
                 const char* name, SavedOptimizerStates saved, const OptionsCheck& check_options);

template <class State>
void read_optimizer(torch::serialize::InputArchive& archive, torch::optim::Optimizer& optimizer,
                    const char* name, const OptionsCheck& check_options) {
  torch::serialize::InputArchive states;
  archive.read("state", states);
  SavedOptimizerStates saved;
  for (const std::string& key : states.keys()) {
    torch::serialize::InputArchive parameter;
    states.read(key, parameter);
    State state;
    state.serialize(parameter);
    saved[saved_address(key, name)] = std::make_unique<State>(std::move(state));
  }
  read_groups(archive, optimizer, name, std::move(saved), check_options);
}

}  // namespace hasten
