// File: hasten/anatomy/detail/component.h
// The vocabulary of hasten/anatomy, from Hugging Face's "model training anatomy": what memory is
// for, what kind of operation an operator is, and the phases of a step.
//
//   anatomy::ComponentBytes bytes{};
//   anatomy::bytes_of(bytes, anatomy::Component::gradients) = 4096;
//   anatomy::total(bytes);                                     // 4096
//   name_of(anatomy::Component::gradients);                    // "gradients"
//
// Every allocation belongs to exactly one component for its whole life: the one that it turns out
// to serve. For example, a tensor that the forward pass makes and saves for the backward pass is an
// activation from its first byte on. Sources: the Transformers documentation, and Ivanov et al.
// 2020 (arXiv 2007.00072) for the groups of operations. Thread rule: constants.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "hasten/options/detail/names.h"

namespace hasten::anatomy {

enum class Component {
  model_weights,      // Parameters, buffers, and copies of them in another type.
  optimizer_states,   // Moments, step counts: what an optimizer keeps between steps.
  gradients,          // Contents of .grad.
  activations,        // Tensors that the forward pass saves for the backward pass.
  temporary_buffers,  // Allocated and freed within a phase.
  functionality,      // The batch, caches of keys and values, beams.
  unknown,            // Allocated outside of the phases, for no known purpose.
};
inline constexpr std::size_t kComponents = 7;

// Bytes by Component.
using ComponentBytes = std::array<std::int64_t, kComponents>;
inline std::int64_t total(const ComponentBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}
inline std::int64_t& bytes_of(ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}
inline std::int64_t bytes_of(const ComponentBytes& bytes, Component component) {
  return bytes[static_cast<std::size_t>(component)];
}

enum class OperationGroup {
  tensor_contraction,         // Matrix products, convolutions, attention.
  statistical_normalization,  // A reduction, and perhaps a map: softmax, layer norm, sums, losses.
  element_wise,               // All other operators that read or write elements.
  none,                       // Views and allocations, which compute nothing.
};
inline constexpr std::size_t kGroups = 4;

// The phases of a step. `other` is everything outside of the first three.
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
