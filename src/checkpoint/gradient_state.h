// File: checkpoint/gradient_state.h (internal)
// Converts the gradients of parameters to named tensors and back, for a checkpoint inside an
// accumulation window.
//
//   TensorDict saved = gradient_tensors(parameters);   // "weight", or "table:values" if it is sparse
//   check_gradients(parameters, saved, file);
//   restore_gradients(parameters, saved);
//
// A dense gradient has the parameter's name. A sparse one is NAME:indices, NAME:values and
// NAME:is_coalesced. A parameter without a gradient has no tensor, and gets no gradient when the
// state is restored. check_gradients throws DataError "checkpoint.gradients". Thread rule: the
// training thread, outside of a backward pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// The file of a rank's gradients in a checkpoint: "gradients_0.safetensors" and so on.
inline std::string gradients_file(std::int64_t rank) {
  return "gradients_" + std::to_string(rank) + ".safetensors";
}

// True for the name of such a file.
inline bool is_gradients_file(const std::string& name) {
  return name.starts_with("gradients_") && name.ends_with(".safetensors");
}

// The returned tensors share the memory of the gradients, but not with each other.
TensorDict gradient_tensors(const ParameterNames& parameters);
// Throws unless each tensor is the gradient of one of the parameters.
void check_gradients(const ParameterNames& parameters, const TensorDict& saved,
                     const std::filesystem::path& file);
// Copies the tensors. A parameter that has no tensor loses its gradient.
void restore_gradients(const ParameterNames& parameters, const TensorDict& saved);

}  // namespace hasten
