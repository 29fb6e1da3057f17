// File: ops/kernels/block_moments.h (internal)
// The steps of optimizers whose moments may have 8 bits. block_moments.cpp is compiled without
// fused multiplications and additions.
#pragma once

#include "ops/kernels/kernels.h"

namespace hasten::ops::HASTEN_ISA {

void step_adamw(float* parameter, const float* gradient, const Moment& exp_avg,
                const Moment& exp_avg_sq, const AdamW& options, Index count);
void step_adamw(bf16* parameter, const bf16* gradient, const Moment& exp_avg,
                const Moment& exp_avg_sq, const AdamW& options, Index count);
void step_lion(float* parameter, const float* gradient, const Moment& exp_avg, const Lion& options,
               Index count);
void step_lion(bf16* parameter, const bf16* gradient, const Moment& exp_avg, const Lion& options,
               Index count);

}  // namespace hasten::ops::HASTEN_ISA
