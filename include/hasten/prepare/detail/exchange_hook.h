// File: hasten/prepare/detail/exchange_hook.h
// A function that an Accelerator calls before the processes exchange the gradients of a window, so
// that they can agree not to exchange them, for example because one process has run out of memory
// or has found a loss that is not finite.
//
//   bool failed = false;   // set by this process
//   ExchangeHook hook = accelerator.register_exchange_pre_hook([&] {
//     const at::Tensor any = group.reduce(at::scalar_tensor(failed ? 1 : 0), Reduction::max);
//     if (any.item<double>() > 0) throw std::runtime_error("a process has failed");
//   });
//   hook.remove();         // backward() exchanges gradients during the pass again
//
// With such a function the first backward pass of the last micro-batch of a window computes its
// gradients, then calls the function, and only then exchanges the gradients. If the function
// throws, backward() throws the exception and nothing is exchanged. Without such a function,
// gradients are exchanged while the pass still computes, which is faster. Every process calls the
// function in the same micro-batch; a process that leaves out that backward pass has to take part
// in the function's collectives itself. The function is not called with a single process, outside
// accumulate(), or in no_sync() and LocalSGD. Such a function cannot be used with
// join_uneven_inputs (UsageError "prepare.join-call") or with elastic ranks
// ("prepare.elastic-loop"). Thread rule: the training thread.
#pragma once

#include <functional>
#include <memory>

namespace hasten {

class ExchangeHook {
 public:
  explicit ExchangeHook(const std::shared_ptr<std::function<void()>>& function)
      : function_(function) {}
  // Unregisters the function.
  void remove() {
    if (const auto function = function_.lock()) *function = nullptr;
  }

 private:
  std::weak_ptr<std::function<void()>> function_;
};

}  // namespace hasten
