// File: hasten/anatomy/component.h
// What memory is for, and what an operation is: the words of Hugging Face's "model training
// anatomy", which the whole of hasten/anatomy speaks in.
//
// Every allocation belongs to exactly one component for as long as it lives, the one it turns out
// to serve: a tensor made in the forward pass and saved for the backward pass is an activation from
// its first byte on. Sources: the Transformers documentation; the groups of operations are those of
// Ivanov et al. 2020 (arXiv 2007.00072). Thread rule: constants.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "hasten/config/names.h"

namespace hasten::anatomy {

enum class Component {
  model_weights,      // parameters, buffers, and their copies in another type
  optimizer_states,   // moments, step counts: what an optimizer keeps from step to step
  gradients,          // what .grad holds
  activations,        // saved by the forward pass for the backward pass
  temporary_buffers,  // come and go within a phase
  functionality,      // the batch, caches of keys and values, beams
  unknown,            // none of these could be told
};
inline constexpr std::size_t kComponents = 7;

using ComponentBytes = std::array<std::int64_t, kComponents>;
inline std::int64_t total(const ComponentBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}
inline std::int64_t& of(ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}
inline std::int64_t of(const ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}

enum class OperationGroup {
  tensor_contraction,         // matrix products, convolutions, attention
  statistical_normalization,  // a reduction, and perhaps a map: softmax, layer norm, sums, losses
  element_wise,               // everything else that reads or writes elements
  none,                       // views, allocations: nothing is computed
};
inline constexpr std::size_t kGroups = 4;

enum class Phase { forward, backward, optimizer, other };
inline constexpr std::size_t kPhases = 4;

}  // namespace hasten::anatomy

namespace hasten {
template <>
struct Names<anatomy::Component> {
  static constexpr std::string_view text[] = {"model_weights", "optimizer_states",  "gradients",
                                              "activations",   "temporary_buffers", "functionality",
                                              "unknown"};
};
template <>
struct Names<anatomy::OperationGroup> {
  static constexpr std::string_view text[] = {"tensor_contraction", "statistical_normalization",
                                              "element_wise", "none"};
};
template <>
struct Names<anatomy::Phase> {
  static constexpr std::string_view text[] = {"forward", "backward", "optimizer", "other"};
};
}  // namespace hasten
