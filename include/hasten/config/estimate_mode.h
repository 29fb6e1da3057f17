// File: hasten/config/estimate_mode.h
// What is estimated. Needs no torch. Thread rule: constants.
#pragma once

#include "hasten/config/names.h"

namespace hasten {

enum class EstimateMode {
  training,   // forward, backward and optimizer
  inference,  // the forward pass alone: nothing is kept for a backward pass
};

template <>
struct Names<EstimateMode> {
  static constexpr std::string_view text[] = {"training", "inference"};
};

}  // namespace hasten
