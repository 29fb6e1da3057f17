// File: ops/codebook.h (internal)
// The maps of dynamic tree quantization (Dettmers et al. 2021, section 2.1). The steps between the
// numbers shrink with every power of ten, so that small numbers keep a few bits. The maps are the
// same as in bitsandbytes' create_dynamic_map. Thread rule: constants.
#pragma once

#include "ops/kernels/kernels.h"

namespace hasten::ops {

// The map of a moment with a sign, and of a moment without one.
const Codebook& signed_codebook();
const Codebook& unsigned_codebook();

}  // namespace hasten::ops
