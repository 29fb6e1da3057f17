// File: hasten/options/estimate_mode.h
// The part of a step that an estimate covers.
//
//   EstimateOptions options{.model = "bert-large", .mode = EstimateMode::inference};
//
// Needs no torch. Thread rule: constants.
#pragma once

#include "hasten/options/names.h"

namespace hasten {

enum class EstimateMode {
  training,   // Forward, backward and optimizer.
  inference,  // The forward pass only, without storing anything for a backward pass.
};

template <>
struct Names<EstimateMode> {
  static constexpr std::string_view text[] = {"training", "inference"};
};

}  // namespace hasten
