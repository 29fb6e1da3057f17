// File: models/module_weights.h (internal)
// The weights of any module by name: how they are saved in a folder and loaded from it.
//
//   save_module(net, "out");                                      // out/model.safetensors
//   const LoadReport report = load_module(net, load_weights("out"), "out");
//
// A PreTrainedModel is saved and loaded with its configuration, its tied parameters and its names;
// any other module has the names of its parameters and buffers, each tensor once. Throws DataError
// "models.*", UsageError "safetensors.*", IoError "io.*". Thread rule: that of the module.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <string>

#include "hasten/formats/tensor_dict.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

// The tensors of a module by name, each once, with further names of some.
struct NamedTensors {
  TensorDict tensors;
  std::map<std::string, std::string> aliases;  // another name -> the name in `tensors`
};
// `tied` are the additional names that PreTrainedModel::tied_parameters() describes.
NamedTensors named_tensors_of(const torch::nn::Module& module,
                              std::map<std::string, std::string> tied = {});

// Copies tensors into the module's, from the names that `source` has by the module's names. Throws
// as PreTrainedModel::load_weights, before anything is copied. Reports what is missing and
// mismatched.
LoadReport copy_weights(const NamedTensors& own, std::map<std::string, std::string> source,
                        const TensorDict& weights, const std::string& where,
                        bool ignore_mismatched_sizes);

// Writes the weights, and the configuration of a PreTrainedModel, into the folder.
void save_module(const torch::nn::Module& module, const std::filesystem::path& folder);
// Loads the weights of a file; `where` names it in messages. A module that is no PreTrainedModel
// keeps the values that the file lacks.
LoadReport load_module(torch::nn::Module& module, const TensorDict& weights,
                       const std::string& where);

}  // namespace hasten
