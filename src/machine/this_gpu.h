// File: machine/this_gpu.h (internal)
// The device name that selects this machine's GPU in `hasten estimate --measure`. Other names of
// GPUs select a model of a card.
#pragma once

#include <string_view>

namespace hasten {

inline constexpr std::string_view kThisGpu = "cuda";

}  // namespace hasten
