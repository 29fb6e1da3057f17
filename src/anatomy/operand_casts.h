// File: anatomy/operand_casts.h (internal)
// The memory that an element-wise CPU kernel takes to cast its operands. LibTorch computes such an
// operation in one type: the type of at::result_type, or float for a function such as sqrt of
// integers. It makes a copy of every operand that has a different type. The copies exist until the
// operation ends. Source: TensorIteratorBase::compute_types in ATen/TensorIterator.cpp.
// Thread rule: any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace hasten::anatomy {

// Returns the bytes of these copies, or 0 if the operation is not element-wise.
std::int64_t operand_cast_bytes(const c10::OperatorHandle& op,
                                const std::vector<c10::IValue>& arguments,
                                const std::vector<c10::IValue>& results);

}  // namespace hasten::anatomy
