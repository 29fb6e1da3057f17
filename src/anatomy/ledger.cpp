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
bool is_provisional(Component component) {
  return component == Component::temporary_buffers || component == Component::unknown;
}

}  // namespace

std::int32_t Ledger::add(const void* pointer, std::int64_t bytes, Component component,
                         const CallSite& site) {
  const auto number = static_cast<std::int32_t>(blocks_.size());
  blocks_.push_back({.bytes = bytes,
                     .component = component,
                     .site = site,
                     .allocated_at = static_cast<std::int64_t>(events_.size())});
  events_.push_back({.time = now(), .block = number, .is_allocation = true});
  alive_[pointer] = number;
  live_ += bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_event_ = static_cast<std::int64_t>(events_.size()) - 1;
  }
  return number;
}

void Ledger::allocate(const void* pointer, std::int64_t bytes, const CallSite& site) {
  const std::lock_guard lock(mutex_);
  release(pointer);  // in case its release was not reported
  add(pointer, bytes,
      site.phase == Phase::other ? Component::unknown : Component::temporary_buffers, site);
}

void Ledger::add_existing(const void* pointer, std::int64_t bytes, Component component,
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
  block.released_at = static_cast<std::int64_t>(events_.size());
  block.released_by_same_call = call >= 0 && call == block.site.call;
  events_.push_back({.time = now(), .block = found->second, .is_allocation = false});
  live_ -= block.bytes;
  alive_.erase(found);
}

void Ledger::clear() {
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
  if (!is_provisional(block.component) && component != Component::model_weights) return;
  block.component = component;
  if (module >= 0) block.site.module = module;
}

void Ledger::assign_survivors(std::int64_t first, Phase phase, Component component) {
  const std::lock_guard lock(mutex_);
  for (auto event = static_cast<std::size_t>(first); event < events_.size(); ++event) {
    if (!events_[event].is_allocation) continue;
    Block& block = blocks_[events_[event].block];
    if (block.released_at < 0 && block.site.phase == phase && is_provisional(block.component))
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

ComponentBytes Ledger::bytes_after(std::int64_t event) const {
  const std::lock_guard lock(mutex_);
  ComponentBytes bytes{};
  for (const Block& block : blocks_) {
    if (block.allocated_at <= event && (block.released_at < 0 || block.released_at > event))
      bytes_of(bytes, block.component) += block.bytes;
  }
  return bytes;
}

}  // namespace hasten::anatomy
