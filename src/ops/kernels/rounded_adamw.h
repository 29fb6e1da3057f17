// The kernels of AdamW with numbers in bfloat16 (rounded_adamw.cpp), which are compiled without fused
// multiplications and additions: these round once where two operations round twice, and a CPU without
// them would compute other bits.
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
