#include "prepare/span.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>

namespace hasten {

std::function<void()> begin_span(const std::string& name) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return {};
  const auto range = std::make_shared<at::RecordFunction>(std::move(*callbacks));
  range->_setAsync();
  range->before(name);
  // The end needs the state of the thread that began the range, because it leads to the profiler.
  return at::wrapPropagateTLSState([range] { range->end(); });
}

}  // namespace hasten
