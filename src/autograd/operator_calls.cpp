#include "autograd/operator_calls.h"

#include <torch/library.h>

#include <atomic>
#include <utility>

namespace hasten {
namespace {

constexpr c10::DispatchKey kInterceptionKey = c10::DispatchKey::Fake;

thread_local OperatorInterceptor* innermost_interceptor = nullptr;
// True if the key is included for an interceptor, and not for a dry run.
thread_local bool includes_for_interceptor = false;

std::atomic<BoxedKernel*> dry_kernel = nullptr;
std::atomic<int> dry_scopes = 0;

void intercept_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  if (innermost_interceptor != nullptr) return innermost_interceptor->call(op, keys, stack);
  call_operator_kernel(op, keys, stack);
}

// Registers the fallback once, at the first use. The first use may happen while the library's
// static objects are still being initialized, in an order that is not defined.
void register_interception() {
  // The pointer is kept in memory, so that LeakSanitizer finds it.
  [[gnu::used]] static const torch::Library* const library = [] {
    auto* const made = new torch::Library(torch::Library::IMPL, "_", kInterceptionKey, __FILE__,
                                          __LINE__);  // never removed
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept_call>());
    return made;
  }();
}

bool is_included() { return c10::impl::tls_is_dispatch_key_included(kInterceptionKey); }

c10::DispatchKey registered_key() {
  register_interception();
  return kInterceptionKey;
}

}  // namespace

InterceptionScope::InterceptionScope(OperatorInterceptor* interceptor)
    : outer_(std::exchange(innermost_interceptor, interceptor)),
      outer_includes_(includes_for_interceptor) {
  if (interceptor == nullptr || is_included()) return;
  included_.emplace(registered_key());
  includes_for_interceptor = true;
}

InterceptionScope::~InterceptionScope() {
  innermost_interceptor = outer_;
  includes_for_interceptor = outer_includes_;
}

void call_operator_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                          torch::jit::Stack* stack) {
  if (DryKernelScope::is_active()) return (*dry_kernel)(op, keys, stack);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kInterceptionKey),
                     stack);
}

DryKernelScope::DryKernelScope(BoxedKernel* kernel) : included_(registered_key()) {
  dry_kernel = kernel;
  ++dry_scopes;
}

DryKernelScope::~DryKernelScope() { --dry_scopes; }

bool DryKernelScope::is_active() {
  return dry_scopes > 0 && !includes_for_interceptor && is_included();
}

}  // namespace hasten
