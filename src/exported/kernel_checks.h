// File: exported/kernel_checks.h (internal)
// Checks the operands of operators whose kernels in LibTorch do not check them. LSTM, GRU, RNN and
// weight normalization read past the end of weights that have wrong shapes, and attention reads
// past the end of keys and values that have different lengths. Packed sequences and the CTC loss
// use the numbers of a tensor as indices. A file may contain such tensors.
//
//   if (const KernelCheck check = kernel_check("lstm")) check(schema, stack);
//
// Numbers inside tensors are checked on the CPU only, because reading them elsewhere would wait for
// the device. Throws DataError "exported.graph". Thread rule: pure functions.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>

namespace hasten::exported {

// Checks the operands of a call, which are on the stack.
using KernelCheck = void (*)(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// Returns the check of an operator of aten, or null if its kernel checks its operands itself.
KernelCheck kernel_check(const std::string& base);

}  // namespace hasten::exported
