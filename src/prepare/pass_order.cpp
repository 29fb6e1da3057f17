#include "prepare/pass_order.h"

#include <torch/torch.h>

#include <exception>
#include <utility>

namespace hasten {
namespace {

ReductionFuture new_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
}

void complete_from(const ReductionFuture& future,
                   const std::function<ReductionFuture()>& exchange) {
  try {
    exchange()->addCallback([future](c10::ivalue::Future& done) {
      if (done.hasError()) {
        future->setError(done.exception_ptr());
      } else {
        future->markCompleted(done.value());
      }
    });
  } catch (...) {
    future->setError(std::current_exception());
  }
}

}  // namespace

std::size_t PassOrder::register_model() {
  waiting_.emplace_back();
  return waiting_.size() - 1;
}

ReductionFuture PassOrder::send(std::size_t position, bool last,
                                const std::function<ReductionFuture()>& exchange) {
  const std::lock_guard lock(mutex_);
  if (released_) return exchange();
  if (position != sending_) {
    waiting_[position].push_back({.exchange = exchange, .future = new_future(), .last = last});
    return waiting_[position].back().future;
  }
  ReductionFuture begun = exchange();
  if (last) {
    ++sending_;
    send_waiting();
  }
  return begun;
}

void PassOrder::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (std::size_t position = 0; position < waiting_.size(); ++position) send_waiting_of(position);
}

void PassOrder::send_waiting() {
  while (sending_ < waiting_.size() && send_waiting_of(sending_)) ++sending_;
}

bool PassOrder::send_waiting_of(std::size_t position) {
  bool ended = false;
  for (const PendingExchange& each : std::exchange(waiting_[position], {})) {
    complete_from(each.future, each.exchange);
    ended = each.last;
  }
  return ended;
}

}  // namespace hasten
