#include "prepare/pass_order.h"

#include <torch/torch.h>

#include <exception>
#include <utility>

namespace hasten {
namespace {

Exchanged promise() { return c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get()); }

void keep(const Exchanged& promised, const std::function<Exchanged()>& exchange) {
  try {
    exchange()->addCallback([promised](c10::ivalue::Future& done) {
      done.hasError() ? promised->setError(done.exception_ptr())
                      : promised->markCompleted(done.value());
    });
  } catch (...) {
    promised->setError(std::current_exception());
  }
}

}  // namespace

std::size_t PassOrder::take_place() {
  waiting_.emplace_back();
  return waiting_.size() - 1;
}

Exchanged PassOrder::send(std::size_t place, bool last,
                          const std::function<Exchanged()>& exchange) {
  const std::lock_guard lock(mutex_);
  if (released_) return exchange();
  if (place != turn_) {
    waiting_[place].push_back({.exchange = exchange, .promised = promise(), .last = last});
    return waiting_[place].back().promised;
  }
  Exchanged begun = exchange();
  if (last) {
    ++turn_;
    send_waiting();
  }
  return begun;
}

void PassOrder::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (std::size_t place = 0; place < waiting_.size(); ++place) send_waiting_of(place);
}

void PassOrder::send_waiting() {
  while (turn_ < waiting_.size() && send_waiting_of(turn_)) ++turn_;
}

bool PassOrder::send_waiting_of(std::size_t place) {
  bool ended = false;
  for (const Waiting& each : std::exchange(waiting_[place], {})) {
    keep(each.promised, each.exchange);
    ended = each.last;
  }
  return ended;
}

}  // namespace hasten
