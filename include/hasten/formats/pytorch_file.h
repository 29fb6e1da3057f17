// File: hasten/formats/pytorch_file.h
// Reads the weights in files of Python's torch.save (pytorch_model.bin) and of LibTorch's
// torch::save. They are pickles, which in Python can run any code when they are loaded. This reader
// executes nothing: it knows tensors, parameters, ordered dictionaries and plain values, and
// refuses every other name and instruction (docs/formats.md). It is off unless a call asks for it.
//
//   TensorDict weights = load_pytorch_weights("pytorch_model.bin", {.allow_pickle = true});
//   convert_pytorch_weights("pytorch_model.bin", "model.safetensors", {.allow_pickle = true});
//
// The names of the tensors are the keys of a state_dict, or those of named_parameters() and
// named_buffers() for a module that torch::save wrote. A folder has pytorch_model.bin, or several
// files that pytorch_model.bin.index.json lists. The tensors are views of the mapped file.
// `hasten convert` does the same, and hasten/checkpoint/pytorch_optimizer.h reads the state of
// optimizers.
//
// Throws UsageError "pickle.not-allowed" unless allow_pickle is true, "weights.merge-target" if the
// target is a checkpoint, and "weights.shard-size" for max_shard_size with one file; DataError
// "pickle.*" and "weights.*"; IoError "io.*". Thread rule: any thread, on different targets.
// Source: torch/serialization.py and torch/csrc/jit/serialization/pickler.cpp of PyTorch 2.11.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct PyTorchFileOptions {
  // Reads pickles.
  bool allow_pickle = false;
  // The most bytes of tensors per file, which requires a conversion to a folder. Unset: one file.
  std::optional<std::int64_t> max_shard_size = std::nullopt;
};

// Returns the tensors of a file or a folder.
HASTEN_API TensorDict load_pytorch_weights(const std::filesystem::path& file_or_folder,
                                           const PyTorchFileOptions& options = {});

// Writes the tensors to a file that ends in ".safetensors", or to a folder, and returns them. A
// tensor that has several names is written once; the metadata of the file lists the other names.
HASTEN_API TensorDict convert_pytorch_weights(const std::filesystem::path& file_or_folder,
                                              const std::filesystem::path& target,
                                              const PyTorchFileOptions& options = {});

}  // namespace hasten
