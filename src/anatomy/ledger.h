// File: anatomy/ledger.h (internal)
// The book of allocations: each block with its bytes, its life and what it was for. It is told of
// allocations by whoever hears of them, LibTorch's allocator or a dry run, and knows neither.
//
//   Ledger ledger;
//   ledger.allocate(pointer, 4096, {.phase = Phase::forward});
//   ledger.assign(pointer, Component::activations);
//   ledger.release(pointer);
//   ledger.peak();                                      // 4096
//
// Times are nanoseconds of the steady clock. Thread rule: any thread (calls are serialized).
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "hasten/anatomy/component.h"

namespace hasten::anatomy {

// Where the program stood when something happened. Names are indices into tables of the recorder;
// -1: none.
struct Place {
  Phase phase = Phase::other;
  std::int32_t module = -1;
  std::int32_t operation = -1;
  std::int64_t call = -1;  // of that operation: counts them
};

struct Block {
  std::int64_t bytes = 0;
  Component component = Component::temporary_buffers;
  Place place;
  std::int64_t born = 0, died = -1;  // places in the ledger's list of events; -1: alive
  bool died_in_its_call = false;     // an operator took it for itself
};

struct Event {
  std::int64_t time = 0;
  std::int32_t block = 0;
  bool birth = true;
};

class Ledger {
 public:
  void allocate(const void* pointer, std::int64_t bytes, const Place& place);
  // Memory that was there before the ledger was opened; does nothing for a known block.
  void adopt(const void* pointer, std::int64_t bytes, Component component, std::int32_t module);
  // A pointer that is not known is somebody else's. `call`: the operator's that gives it back.
  void release(const void* pointer, std::int64_t call = -1);
  // Everything.
  void forget();
  // What the block serves. The first lasting purpose stays (a batch is a batch though it is saved
  // for the backward pass too), but what turns out to be weights is weights.
  void assign(const void* pointer, Component component, std::int32_t module = -1);
  // All blocks born since event `first` in `phase` and alive without a lasting purpose.
  void assign_survivors(std::int64_t first, Phase phase, Component component);
  // What is known of the block now.
  const Block* find(const void* pointer) const;

  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }
  // The event after which the peak stood; -1: nothing was allocated.
  std::int64_t peak_event() const { return peak_event_; }
  // Counts from here on.
  void reset_peak();

  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Event>& events() const { return events_; }

  // Bytes by component just after an event, with what is known now.
  ComponentBytes at(std::int64_t event) const;

 private:
  std::int32_t add(const void* pointer, std::int64_t bytes, Component component,
                   const Place& place);

  mutable std::recursive_mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<Event> events_;
  std::unordered_map<const void*, std::int32_t> alive_;
  std::int64_t live_ = 0, peak_ = 0, peak_event_ = -1;
};

}  // namespace hasten::anatomy
