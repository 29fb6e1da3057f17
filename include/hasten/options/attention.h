// File: hasten/options/attention.h
// The ways to compute attention: attn_implementation of Transformers.
//
//   ModelOptions options{.attn_implementation = AttentionImplementation::eager};
//
// Needs no torch. Thread rule: constants.
#pragma once

#include "hasten/options/names.h"

namespace hasten {

enum class AttentionImplementation {
  sdpa,  // One fused operator that never stores the probabilities; the fastest.
  // Product, softmax, dropout and product, each stored for the backward pass; easy to inspect.
  eager,
};

template <>
struct Names<AttentionImplementation> {
  static constexpr std::string_view text[] = {"sdpa", "eager"};
};

}  // namespace hasten
