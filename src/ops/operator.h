// File: ops/operator.h (internal)
// Registers CPU kernels as operators of LibTorch's dispatcher, `hasten::name`, so that profilers
// count them and a dry run can leave them out.
//
// The operators write into tensors that they are given and allocate nothing, so every byte of a
// training step comes from LibTorch's own operators, where the ledger records it. On the Meta
// device, where tensors have only shapes, they do nothing.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string_view>
#include <utility>

namespace hasten::ops {

// The Meta kernel of an operator without results: removes the arguments from the stack.
inline void drop_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

// Registers an operator that has no CPU kernel. ops/gpu_rows.cpp registers its GPU kernel.
inline void add_device_operator(torch::Library& library, std::string_view schema) {
  const std::string name(schema.substr(0, schema.find('(')));
  library.def(std::string(schema).c_str());
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Meta,
                               torch::CppFunction::makeFromBoxedFunction<&drop_arguments>()));
}

// Registers a CPU kernel, for example:
//   add_operator(library, "bias_gelu(Tensor x, Tensor bias, Tensor(a!) y) -> ()", kernel);
template <class Kernel>
void add_operator(torch::Library& library, std::string_view schema, Kernel* kernel) {
  const std::string name(schema.substr(0, schema.find('(')));
  library.def(std::string(schema).c_str(), torch::dispatch(c10::DispatchKey::CPU, kernel));
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Meta,
                               torch::CppFunction::makeFromBoxedFunction<&drop_arguments>()));
}

// Runs below autograd, because the caller is an autograd function or an optimizer.
template <auto kernel, class... Args>
auto call_operator(const char* name, Args&&... args) {
  using Signature = std::remove_pointer_t<decltype(kernel)>;
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(std::forward<Args>(args)...);
}

// Increments the version counters. LibTorch's in-place operators do this so that a backward pass
// throws if a tensor that it saved was overwritten. The kernels run below the code that counts.
inline void bump_versions(at::TensorList tensors) {
  for (const at::Tensor& x : tensors) {
    if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace hasten::ops
