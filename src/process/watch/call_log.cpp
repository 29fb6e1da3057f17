#include "process/watch/call_log.h"

#include <unistd.h>

#include <utility>

namespace hasten {
namespace {

// The log keeps this many calls, and more only while the oldest of them is in progress.
constexpr std::size_t kMaxKept = 16;

pid_t this_thread() {
  thread_local const pid_t number = gettid();
  return number;
}

}  // namespace

std::int64_t CallLog::begin(const Call& call) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  while (entries_.size() >= kMaxKept && entries_.front().over) entries_.pop_front();
  entries_.push_back({.call = call, .number = ++begun_, .began = now});
  entries_.back().call.purpose = purpose_.text;
  entries_.back().call.index = purpose_.index;
  thread_ = this_thread();
  last_activity_ = now;
  return begun_;
}

void CallLog::end(std::int64_t number) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  const std::int64_t at = number - entries_.front().number;  // entries are numbered without gaps
  Entry& entry = entries_[static_cast<std::size_t>(at)];
  entry.ended = now;
  entry.over = true;
  last_activity_ = now;
}

CallLog::Purpose CallLog::set_purpose(Purpose purpose) {
  const std::lock_guard lock(mutex_);
  return std::exchange(purpose_, purpose);
}

void CallLog::set_step(std::int64_t done) {
  const std::lock_guard lock(mutex_);
  step_ = done;
}

std::optional<CallLog::Clock::time_point> CallLog::oldest_call_start() const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (!entry.over) return entry.began;
  }
  return std::nullopt;
}

CallLog::Clock::time_point CallLog::last_activity() const {
  const std::lock_guard lock(mutex_);
  return last_activity_;
}

CallLog::Snapshot CallLog::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {.begun = begun_,
          .step = step_,
          .thread = thread_,
          .entries = {entries_.begin(), entries_.end()}};
}

}  // namespace hasten
