// File: ops/kernels/rounded_adamw.h (internal)
// The kernels of AdamW with numbers in bfloat16 (rounded_adamw.cpp). They are compiled without
// fused multiplications and additions: a fused operation rounds once and two separate ones round
// twice, so a CPU without fused operations would compute different bits.
#pragma once

#include "ops/kernels/kernels.h"

namespace hasten::ops::HASTEN_ISA {

template <class Parameter, class Moment>
void rounded_adamw(Parameter* parameter, const Parameter* gradient, Moment* exp_avg,
                   Moment* exp_avg_sq, const AdamW& options, const Rounding& rounding, Index first,
                   Index count);

void rounded_decay(bf16* parameter, float factor, const Rounding& rounding, Index first,
                   Index count);

}  // namespace hasten::ops::HASTEN_ISA
