#include "anatomy/ledger.h"

#include <chrono>

namespace hasten::anatomy {
namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// True if a block of this component has no lasting purpose yet.
bool is_open(Component component) {
  return component == Component::temporary_buffers || component == Component::unknown;
}

}  // namespace

std::int32_t Ledger::add(const void* pointer, std::int64_t bytes, Component component,
                         const Place& place) {
  const auto number = static_cast<std::int32_t>(blocks_.size());
  blocks_.push_back({.bytes = bytes,
                     .component = component,
                     .place = place,
                     .born = static_cast<std::int64_t>(events_.size())});
  events_.push_back({.time = now(), .block = number, .birth = true});
  alive_[pointer] = number;
  live_ += bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_event_ = static_cast<std::int64_t>(events_.size()) - 1;
  }
  return number;
}

void Ledger::allocate(const void* pointer, std::int64_t bytes, const Place& place) {
  const std::lock_guard lock(mutex_);
  release(pointer);  // in case its release was not reported
  add(pointer, bytes,
      place.phase == Phase::other ? Component::unknown : Component::temporary_buffers, place);
}

void Ledger::adopt(const void* pointer, std::int64_t bytes, Component component,
                   std::int32_t module) {
  const std::lock_guard lock(mutex_);
  if (pointer == nullptr || bytes == 0) return;
  if (alive_.count(pointer)) return assign(pointer, component, module);
  add(pointer, bytes, component, {.phase = Phase::other, .module = module});
}

void Ledger::release(const void* pointer, std::int64_t call) {
  const std::lock_guard lock(mutex_);
  const auto found = alive_.find(pointer);
  if (found == alive_.end()) return;
  Block& block = blocks_[found->second];
  block.died = static_cast<std::int64_t>(events_.size());
  block.died_in_its_call = call >= 0 && call == block.place.call;
  events_.push_back({.time = now(), .block = found->second, .birth = false});
  live_ -= block.bytes;
  alive_.erase(found);
}

void Ledger::forget() {
  const std::lock_guard lock(mutex_);
  blocks_.clear();
  events_.clear();
  alive_.clear();
  live_ = peak_ = 0;
  peak_event_ = -1;
}

void Ledger::assign(const void* pointer, Component component, std::int32_t module) {
  const std::lock_guard lock(mutex_);
  const auto found = alive_.find(pointer);
  if (found == alive_.end()) return;
  Block& block = blocks_[found->second];
  if (!is_open(block.component) && component != Component::model_weights) return;
  block.component = component;
  if (module >= 0) block.place.module = module;
}

void Ledger::assign_survivors(std::int64_t first, Phase phase, Component component) {
  const std::lock_guard lock(mutex_);
  for (auto event = static_cast<std::size_t>(first); event < events_.size(); ++event) {
    if (!events_[event].birth) continue;
    Block& block = blocks_[events_[event].block];
    if (block.died < 0 && block.place.phase == phase && is_open(block.component))
      block.component = component;
  }
}

const Block* Ledger::find(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto found = alive_.find(pointer);
  return found == alive_.end() ? nullptr : &blocks_[found->second];
}

void Ledger::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
  peak_event_ = static_cast<std::int64_t>(events_.size()) - 1;
}

ComponentBytes Ledger::at(std::int64_t event) const {
  const std::lock_guard lock(mutex_);
  ComponentBytes bytes{};
  for (const Block& block : blocks_) {
    if (block.born <= event && (block.died < 0 || block.died > event))
      of(bytes, block.component) += block.bytes;
  }
  return bytes;
}

}  // namespace hasten::anatomy
