// File: exported/exported_binding.h (internal)
// A program of an exported module with the module's tensors in the order of its inputs.
//
// Thread rule: the same as for the module.
#pragma once

#include <memory>
#include <vector>

#include "exported/exported_parts.h"

namespace hasten {

struct ExportedModule::Binding {
  std::shared_ptr<const exported::Program> program;
  // The graph with the regions that are recomputed; null if nothing is recomputed.
  std::shared_ptr<const exported::Graph> recomputed = nullptr;
  std::vector<at::Tensor> state = {};
  // The type that floating-point tensors had in the file.
  at::ScalarType file_type = at::kFloat;

  // The type that floating-point tensors have now, after to().
  at::ScalarType current_type() const {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (program->state[i].kind == exported::StateInput::Kind::parameter &&
          state[i].is_floating_point())
        return state[i].scalar_type();
    return file_type;
  }
  // Constants are not registered, so to() does not reach them.
  void convert_constants(at::Device device) {
    const at::ScalarType type = current_type();
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (program->state[i].kind != exported::StateInput::Kind::constant) continue;
      const bool follows = state[i].scalar_type() == file_type;
      state[i] = state[i].to(device, follows ? type : state[i].scalar_type());
    }
  }
};

}  // namespace hasten
