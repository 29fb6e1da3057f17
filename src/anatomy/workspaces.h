// File: anatomy/workspaces.h (internal)
// Memory that LibTorch's kernels take while they run, which a dry run cannot see. How much it is,
// and in which order, depends on the kernel, the shapes, the type, the threads and the CPU, and
// only the kernel knows: so it is asked. The operators that do such things are run once for each
// signature on stand-in operands, while a listener writes down what is allocated and freed.
//
// A kernel too slow to be run in passing is asked with fewer rows, twice, and what a row adds to
// each block is reckoned up. Thread rule: as DryRun.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hasten::anatomy {

// Whether the operator may take memory of its own on the CPU.
bool has_workspace(std::string_view name);

// What a kernel allocates and frees, in its order.
struct Script {
  struct Event {
    std::size_t block = 0;
    bool birth = true;
  };
  std::vector<std::int64_t> bytes;  // of each block
  std::vector<Event> events;
  std::vector<std::ptrdiff_t> results;  // the block in which each result lies; -1: in none of these
};

// Arguments as the program gave them; call it with dry runs switched off. The reference holds as
// long as the thread.
const Script& script_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

// The results' shapes, on the Meta device, of an operator whose Meta kernel is missing: the kernel
// is run on stand-in operands. Nothing where the operands are too large for that.
std::optional<std::vector<c10::IValue>> asked_shapes(const c10::OperatorHandle& op,
                                                     const std::vector<c10::IValue>& arguments);

}  // namespace hasten::anatomy
