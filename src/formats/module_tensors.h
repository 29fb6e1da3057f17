// File: formats/module_tensors.h (internal)
// The tensors of a module as a file stores them: parameters and buffers by name, each tensor once.
//
//   const ModuleTensors own = tensors_of(*module);
//   own.tensors.at(own.saved_name("decoder.weight"));   // the tied "embedding.weight"
//
// Thread rule: the same as for the module. The functions throw only if memory runs out.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/internal_api.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Returns the parameters and then the buffers of a module, as they are registered. A tensor with
// several names occurs under each name. LibTorch leaves out undefined tensors, such as the
// statistics of a norm that has none.
NamedTensors registered_tensors(const torch::nn::Module& module);

struct ModuleTensors {
  TensorDict tensors;
  std::map<std::string, std::string> aliases;  // another name -> the name in `tensors`
  std::vector<std::string> order;              // the names in `tensors`, as they are registered

  // Returns the name in `tensors` of a tensor that may have several names.
  const std::string& saved_name(const std::string& name) const {
    const auto other = aliases.find(name);
    return other == aliases.end() ? name : other->second;
  }
};

// A tensor that is registered under several names is saved under the first one. `tied` maps further
// names to the name under which their tensor is saved, and takes precedence over the order.
ModuleTensors tensors_of(const torch::nn::Module& module,
                         const std::map<std::string, std::string>& tied = {});

// Returns the sizes as text, such as "[2, 3]".
HASTEN_INTERNAL_API std::string shape_text(at::IntArrayRef sizes);

// Returns how many numbers the parameters of a module have.
HASTEN_INTERNAL_API std::int64_t parameter_count(const torch::nn::Module& module);

}  // namespace hasten
