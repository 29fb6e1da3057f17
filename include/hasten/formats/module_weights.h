// File: hasten/formats/module_weights.h
// Saves and loads the weights of any LibTorch module as safetensors, under the names that Python's
// state_dict uses.
//
//   save_weights(*net, "net.safetensors");   // a ModuleHolder or a shared_ptr: *net is the module
//   load_weights(*net, "net.safetensors");   // every name must match, otherwise nothing changes
//
//   // A file of a wrapped module, with an older name, and without the head.
//   const IncompatibleNames names = load_weights(
//       *net, folder,
//       {.strict = false,
//        .rename = {replace_prefix("module.", ""), replace_regex("^fc(\\d+)\\.", "layers.$1.")}});
//   for (const std::string& name : names.missing) std::cout << name << " keeps its value\n";
//
// In Python:
//
//   # Python
//   safetensors.torch.load_model(net, "net.safetensors")
//   safetensors.torch.save_model(net, "net.safetensors")   # or save_file(net.state_dict(), ...)
//
// Names: the name of a parameter or buffer consists of the names of the modules that contain it and
// its own registered name, joined by dots. register_module("fc1", ...), register_parameter("scale",
// ...) and register_buffer("mean", ...) give the names of Python's attributes self.fc1, self.scale
// and self.mean; LibTorch's own modules use the same names as Python's. Sequential and ModuleList
// number their modules from 0 in both languages.
//
// Buffers: Python leaves a buffer with persistent=False out of state_dict. C++ does not know this
// property, so `non_persistent` has to name such buffers.
//
// Tied weights: a tensor that is registered under several names is saved once, under the name that
// was registered first. The file's metadata map the other names to it, as Python's save_model does.
// When loading, one of the names is enough; if the file has several, they must be equal. The module
// stays tied, because values are copied into its tensors. In C++, a module ties a weight by
// registering the tensor of another module: weight = register_parameter("weight", table->weight).
//
// Throws DataError "weights.mismatch", which lists everything that does not fit, UsageError
// "weights.*", and what hasten/formats/weights.h and safetensors.h throw. Thread rule: no other
// thread uses the module meanwhile.
// Source: state_dict and load_state_dict of PyTorch 2.11, save_model of safetensors 0.8.0.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/weights.h"

namespace hasten {

struct SaveModuleOptions {
  // Buffers to leave out: a full name, or the last parts of one ("inv_freq", "rotary.inv_freq").
  std::vector<std::string> non_persistent = {};
  // The maximum bytes of tensors per file, when saving to a folder.
  std::int64_t max_shard_size = 50'000'000'000;
  SafetensorsMetadata metadata = {{"format", "pt"}};
};

// Writes one file if the path ends in ".safetensors". Any other path is a folder, which receives
// model.safetensors, or shards with an index, as with save_weights in hasten/formats/weights.h.
HASTEN_API void save_weights(const torch::nn::Module& module,
                             const std::filesystem::path& file_or_folder,
                             const SaveModuleOptions& options = {});

// Returns the module's name for a name in a file. An empty result leaves the tensor out.
using Rename = std::function<std::string(const std::string& name)>;
// Replaces `from` at the beginning of a name; an empty `from` adds `to` to every name.
HASTEN_API Rename replace_prefix(std::string from, std::string to);
// Replaces every match of an ECMAScript expression; `to` may use $1 and so on. Throws UsageError
// "weights.regex" if the expression is not valid.
HASTEN_API Rename replace_regex(const std::string& expression, std::string to);

struct LoadModuleOptions {
  // If false, tensors that the file lacks keep their values, and extra tensors in the file are
  // ignored. Shapes and types must match in either case, as in Python.
  bool strict = true;
  // If true, converts tensors of a different type. If false, a different type is an error.
  bool convert_dtype = false;
  // Applied to each name in the file, one after the other.
  std::vector<Rename> rename = {};
  // Buffers that the file need not have, as in SaveModuleOptions.
  std::vector<std::string> non_persistent = {};
};

// The names that did not match, with strict = false.
struct IncompatibleNames {
  std::vector<std::string> missing;     // names of the module that the file lacks
  std::vector<std::string> unexpected;  // names in the file, renamed, that the module lacks
};

// Copies the tensors of a .safetensors file, an index, or a folder into the module's parameters and
// buffers, on their devices. Everything is checked before anything is copied. With strict = false
// at least one name must match.
HASTEN_API IncompatibleNames load_weights(torch::nn::Module& module,
                                          const std::filesystem::path& file_or_folder,
                                          const LoadModuleOptions& options = {});

}  // namespace hasten
