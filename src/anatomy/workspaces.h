// File: anatomy/workspaces.h (internal)
// Memory that LibTorch's CPU kernels take while they run, which a dry run cannot see. Its amount
// and order depend on the kernel, the shapes, the type, the number of threads and the CPU, and only
// the kernel knows them. So an operator that takes such memory is run once for each signature, on
// operands filled with zeros, while a listener records what is allocated and freed.
//
// A kernel that is too slow for this is run twice with fewer rows, and the bytes that each row adds
// to a block are extrapolated. Thread rule: as for DryRun.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::anatomy {

// Returns a text that is equal for calls of the same operator with the same numbers, and with
// operands of the same shapes, types and strides.
std::string call_signature(const c10::OperatorHandle& op,
                           const std::vector<c10::IValue>& arguments);

// Returns the arguments with every tensor replaced by zeros.
torch::jit::Stack zero_operands(const std::vector<c10::IValue>& arguments);

// Returns whether the operator may take temporary memory on the CPU.
bool has_workspace(std::string_view name);

// The blocks that a kernel allocates and frees, in this order.
struct AllocationTrace {
  struct Event {
    std::size_t block = 0;
    bool is_allocation = true;
  };
  std::vector<std::int64_t> bytes;  // by block
  std::vector<Event> events;
  std::vector<std::ptrdiff_t> results;  // by result: the block that holds it, or -1
  // By result: a tensor with its sizes and strides on the Meta device. The list is empty if the
  // kernel ran with fewer rows.
  std::vector<at::Tensor> layouts;
};

// Returns the allocations of the operator for these arguments, which are as the program gave them.
// Call it with dry runs switched off. The reference is valid as long as the calling thread.
const AllocationTrace& allocation_trace(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments);

// Returns the shapes of an operator's results on the Meta device, for operators without a Meta
// kernel. It runs the CPU kernel on zeros of the same shapes. Returns nullopt if the operands
// exceed 256 MiB or there is no CPU kernel.
std::optional<std::vector<c10::IValue>> shapes_from_kernel(
    const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

}  // namespace hasten::anatomy
