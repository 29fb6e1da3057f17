// File: hasten/options/detail/names.h
// Enumerations with text names: an `enum class` in C++, and a word in flags and files. The
// enumerations that several folders use are defined here, too.
//
//   enum class Colour { red, dark_green };
//   template <>
//   struct hasten::Names<Colour> {
//     static constexpr std::string_view text[] = {"red", "dark-green"};   // in the enum's order
//   };
//
//   name_of(Colour::dark_green);        // "dark-green"
//   from_name<Colour>("red");           // Colour::red; nullopt for any other word
//
// Enumerators count from 0 without gaps. Thread rule: constants and pure functions; nothing throws.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

#include "hasten/base/log.h"

namespace hasten {

template <class Enum>
struct Names;

template <class Enum>
constexpr std::string_view name_of(Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < std::size(Names<Enum>::text) ? Names<Enum>::text[at] : std::string_view("?");
}

template <class Enum>
constexpr std::optional<Enum> from_name(std::string_view name) {
  for (std::size_t at = 0; at < std::size(Names<Enum>::text); ++at) {
    if (Names<Enum>::text[at] == name) return static_cast<Enum>(at);
  }
  return std::nullopt;
}

template <>
struct Names<LogLevel> {
  static constexpr std::string_view text[] = {"passive", "debug", "info",
                                              "warning", "error", "critical"};
};

// How attention is computed: attn_implementation of Transformers.
enum class AttentionImplementation {
  sdpa,  // One fused operator that never stores the probabilities; the fastest.
  // Product, softmax, dropout and product, each stored for the backward pass; easy to inspect.
  eager,
};
template <>
struct Names<AttentionImplementation> {
  static constexpr std::string_view text[] = {"sdpa", "eager"};
};

// The computation that an estimate covers.
enum class EstimateMode {
  training,    // Forward, backward and optimizer.
  inference,   // The forward pass only, without storing anything for a backward pass.
  generation,  // Reading prompts, then generating tokens one by one.
};
template <>
struct Names<EstimateMode> {
  static constexpr std::string_view text[] = {"training", "inference", "generate"};
};

}  // namespace hasten
