// The maps of dynamic tree quantization (Dettmers et al. 2021, section 2.1): numbers whose steps
// shrink with every power of ten, so that small numbers keep a few bits. They are those of
// bitsandbytes' create_dynamic_map. Thread rule: constants.
#pragma once

#include "ops/kernels/kernels.h"

namespace hasten::ops {

// The map of a moment that has a sign, and of one that has none.
const Codebook& signed_codebook();
const Codebook& unsigned_codebook();

}  // namespace hasten::ops
