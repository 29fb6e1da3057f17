// File: anatomy/dry_plan.h (internal)
// How a dry run executes each operator of LibTorch's dispatcher. The strategy is decided once for
// each operator and thread, from the operator's schema and its kernels. Thread rule: any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "anatomy/gpu_kernels.h"
#include "anatomy/shape_rules.h"

namespace hasten::anatomy {

// How an operator is executed without data.
enum class Strategy {
  shapes,          // makes results of the right shape, by LibTorch's Meta kernel or hasten's rule
  real,            // runs the real kernel, which touches no data: views and wrappers
  composite,       // runs the operators that it consists of, each with its own strategy
  sparse,          // runs the kernel for sparse tensors, which calls operators on their parts
  skip,            // does nothing: the operator has no result
  placeholder,     // returns a placeholder for a number that the program reads
  always_true,     // returns true for a comparison
  data_dependent,  // throws: the shape of the result depends on values
};

struct OperatorPlan {
  Strategy strategy = Strategy::shapes;
  std::optional<c10::DispatchKey> composite;  // the key of the kernel for all devices
  ShapeRule rule = nullptr, gpu_rule = nullptr;
  bool on_cpu = false;     // there is a kernel for the CPU
  bool workspace = false;  // that kernel takes temporary memory
  GpuWorkspace gpu_workspace = nullptr;
  GpuComposite gpu_composite = nullptr;
  std::vector<std::size_t> gpu_result_order;  // the results that a GPU's kernel allocates first
  std::string name;
  std::ptrdiff_t device = -1, pinned = -1;  // positions of these arguments, or -1
};

// Returns a reference that is valid as long as the calling thread.
const OperatorPlan& plan_for(const c10::OperatorHandle& op);

}  // namespace hasten::anatomy
