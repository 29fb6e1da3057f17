#include "process/backend/backend_wrappers.h"

#include <utility>

#include "process/backend/forwarding_backend.h"

namespace hasten {
namespace {

class ObservedBackend : public ForwardingBackend<ObservedBackend> {
 public:
  ObservedBackend(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<CallLog> calls,
                  std::unique_ptr<CallChecker> checker)
      : ForwardingBackend(std::move(backend)),
        calls_(std::move(calls)),
        checker_(std::move(checker)) {}

  template <class Describe, class Run>
  Work forward_in_place(const Describe& describe, Tensors& tensors, const Run& run) {
    return record(describe(), [&] { return run(tensors); });
  }
  template <class Describe, class Outputs, class Inputs, class Run>
  Work forward_out_of_place(const Describe& describe, Outputs& outputs, Inputs& inputs,
                            const Run& run) {
    return record(describe(), [&] { return run(outputs, inputs); });
  }
  template <class Describe, class Run>
  Work forward_without_tensors(const Describe& describe, const Run& run) {
    return record(describe(), run);
  }
  template <class Run>
  Work forward_send(Tensors& tensors, const Run& run) {
    return run(tensors);
  }
  template <class Run>
  Work forward_receive(Tensors& tensors, const Run& run) {
    return run(tensors);
  }

 private:
  // Records a call, compares it if there is a checker, and runs it. The call is in progress
  // until its future completes, with a result or an error.
  template <class Run>
  Work record(const Call& call, const Run& run) {
    const std::int64_t number = calls_->begin(call);
    Work work;
    try {
      if (checker_) checker_->check(call);
      work = run();
    } catch (...) {
      calls_->end(number);
      throw;
    }
    if (!work) {
      calls_->end(number);
    } else {
      work->getFuture()->addCallback(
          [calls = calls_, number](c10::ivalue::Future&) { calls->end(number); },
          /*uses_future=*/false);
    }
    return work;
  }

  std::shared_ptr<CallLog> calls_;
  std::unique_ptr<CallChecker> checker_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_observed_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                        std::shared_ptr<CallLog> calls,
                                                        std::unique_ptr<CallChecker> checker) {
  return c10::make_intrusive<ObservedBackend>(std::move(backend), std::move(calls),
                                              std::move(checker));
}

}  // namespace hasten
