// File: cli/written_weights.h
// Reports what a command has written.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

#include "hasten/base/text.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten::cli {

inline void print_written_weights(const std::string& target, const TensorDict& weights) {
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : weights) parameters += tensor.numel();
  std::cout << str("Written to ", target, ": ", weights.size(), " tensors, ",
                   group_thousands(parameters), " parameters\n");
}

}  // namespace hasten::cli
