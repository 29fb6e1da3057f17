// File: autograd/operator_calls.h (internal)
// Intercepts every call of an operator below autograd, on the threads that ask for it, and may
// replace the call. A dry run computes only shapes instead, and selective recomputation returns
// results that it has kept. Inside a dry run, both can be active.
//
//   struct Counter final : OperatorInterceptor {
//     void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
//               torch::jit::Stack* stack) override {
//       ++calls;
//       call_operator_kernel(op, keys, stack);
//     }
//     int calls = 0;
//   } counter;
//   const InterceptionScope scope(&counter);
//
// The interception is a fallback kernel for DispatchKey::Fake. Of the keys between autograd and the
// kernels of devices, it is the only one that LibTorch does not use. Thread rule: a scope acts on
// its own thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace hasten {

class OperatorInterceptor {
 public:
  // Takes the arguments from the stack and leaves the results there.
  virtual void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) = 0;

 protected:
  ~OperatorInterceptor() = default;
};

class [[nodiscard]] InterceptionScope {
 public:
  // If `interceptor` is null, calls are not intercepted.
  explicit InterceptionScope(OperatorInterceptor* interceptor);
  InterceptionScope(const InterceptionScope&) = delete;
  InterceptionScope& operator=(const InterceptionScope&) = delete;
  ~InterceptionScope();

 private:
  OperatorInterceptor* outer_;
  bool outer_includes_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> included_;
};

// Runs the kernel that a call has without an interceptor: that of the device, or that of the dry
// run.
void call_operator_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                          torch::jit::Stack* stack);

using BoxedKernel = void(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

// While it exists, this thread and the threads of its backward passes call `kernel` for every
// operator.
class DryKernelScope {
 public:
  explicit DryKernelScope(BoxedKernel* kernel);
  DryKernelScope(const DryKernelScope&) = delete;
  DryKernelScope& operator=(const DryKernelScope&) = delete;
  ~DryKernelScope();

  // Returns whether this thread is in such a scope.
  static bool is_active();

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace hasten
