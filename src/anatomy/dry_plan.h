// File: anatomy/dry_plan.h (internal)
// How each operator of LibTorch's dispatcher is carried out in a dry run, decided once an operator
// from its schema and the kernels it has. Thread rule: any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <optional>
#include <string>

#include "anatomy/gpu_kernels.h"
#include "anatomy/shape_rules.h"

namespace hasten::anatomy {

// How an operator is carried out without data.
enum class Way {
  shapes,     // results of the right shape: LibTorch's Meta kernel or a rule of ours
  real,       // views and wrappers: the real kernel touches no data
  composite,  // the operators it is made of, each in its way
  sparse,     // the kernel for sparse tensors, down to operators on their parts
  drop,       // nothing comes back
  value,      // a number is read: a stand-in
  truth,      // a comparison: true
  depends,    // the shape of the result depends on values
};

struct Plan {
  Way way = Way::shapes;
  std::optional<c10::DispatchKey> composite;  // the kernel that stands for all devices
  ShapeRule rule = nullptr, gpu_rule = nullptr;
  bool on_cpu = false;     // has a kernel for the CPU
  bool workspace = false;  // which takes memory of its own
  GpuWorkspace gpu_workspace = nullptr;
  std::string name;
  std::ptrdiff_t device = -1, pinned = -1;  // places of these arguments
};

const Plan& plan_of(const c10::OperatorHandle& op);

}  // namespace hasten::anatomy
