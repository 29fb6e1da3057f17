// File: machine/this_gpu.h (internal)
// The device name of `hasten estimate --measure` that means this machine's GPU, not a card by name.
#pragma once

#include <string_view>

namespace hasten {

inline constexpr std::string_view kThisGpu = "cuda";

}  // namespace hasten
