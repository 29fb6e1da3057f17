// File: exported/exported_binding.h (internal)
// A program of an exported module with the module's tensors in the order of its inputs.
//
// Thread rule: the same as for the module.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "exported/exported_parts.h"

namespace hasten {

struct ExportedModule::Binding {
  std::shared_ptr<const exported::Program> program;
  // The graph with the regions that are recomputed; null if nothing is recomputed.
  std::shared_ptr<const exported::Graph> recomputed = nullptr;
  std::vector<at::Tensor> state = {};
  // The constants as they are in the file, at the same places as in `state`; undefined for other
  // tensors. They share their memory with `state` until the first conversion.
  std::vector<at::Tensor> file_constants = {};
  // The type that floating-point tensors had in the file.
  at::ScalarType file_type = at::kFloat;
  // Protects the constants in `state`, which calls of forward() convert.
  std::unique_ptr<std::mutex> constants_mutex = std::make_unique<std::mutex>();

  // The type that floating-point tensors have now, after to().
  at::ScalarType current_type() const {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (program->state[i].kind == exported::StateInput::Kind::parameter &&
          state[i].is_floating_point())
        return state[i].scalar_type();
    return file_type;
  }
  // Returns the tensors for a run on the device; several threads may call this at once. Constants
  // are not registered, so to() does not reach them. Converts the constants of the file, so that a
  // conversion back to the file's type gives their values in the file.
  std::vector<at::Tensor> state_on(at::Device device) {
    const at::ScalarType type = current_type();
    const std::scoped_lock lock(*constants_mutex);
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (program->state[i].kind != exported::StateInput::Kind::constant) continue;
      const at::ScalarType own = file_constants[i].scalar_type();
      const at::ScalarType wanted = own == file_type ? type : own;
      if (state[i].device() != device || state[i].scalar_type() != wanted)
        state[i] = file_constants[i].to(device, wanted);
    }
    return state;
  }
};

}  // namespace hasten
