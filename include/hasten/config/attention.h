// File: hasten/config/attention.h
// How attention is computed; the peer's attn_implementation. Needs no torch. Thread rule:
// constants.
#pragma once

#include "hasten/config/names.h"

namespace hasten {

enum class AttentionImplementation {
  sdpa,   // one operator that never keeps the probabilities: the fastest there is for the device
  eager,  // product, softmax, dropout, product, each kept for the backward pass: easy to look into
};

template <>
struct Names<AttentionImplementation> {
  static constexpr std::string_view text[] = {"sdpa", "eager"};
};

}  // namespace hasten
