// File: machine/this_gpu.h (internal)
// The device of `hasten estimate --measure` that is this machine's GPU, and no card by its name.
#pragma once

#include <string_view>

namespace hasten {

inline constexpr std::string_view kThisGpu = "cuda";

}  // namespace hasten
