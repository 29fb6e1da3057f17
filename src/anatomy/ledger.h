// File: anatomy/ledger.h (internal)
// Records allocations: the size, the lifetime and the purpose of each block. LibTorch's allocator
// or a dry run reports allocations to it; the ledger depends on neither.
//
//   Ledger ledger;
//   ledger.allocate(pointer, 4096, {.phase = Phase::forward});
//   ledger.assign(pointer, Component::activations);
//   ledger.release(pointer);
//   ledger.peak();                                      // 4096
//
// Times are nanoseconds of the steady clock. Thread rule: any thread (calls are serialized), but
// live, peak, peak_event, blocks and events do not lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "hasten/anatomy/detail/component.h"

namespace hasten::anatomy {

// The point in the program at which something happened. `module` and `operation` are indices into
// tables of the Recorder; -1 means none.
struct CallSite {
  Phase phase = Phase::other;
  std::int32_t module = -1;
  std::int32_t operation = -1;
  std::int64_t call = -1;   // the number of the operator call
  std::int64_t stream = 0;  // the current stream of a GPU; 0 for the computation
};

struct Block {
  std::int64_t bytes = 0;
  Component component = Component::temporary_buffers;
  CallSite site;
  // Indices of events; released_at is -1 while the block is alive.
  std::int64_t allocated_at = 0, released_at = -1;
  bool released_by_same_call = false;  // the operator call that allocated it also released it
};

struct Event {
  std::int64_t time = 0;
  std::int32_t block = 0;
  bool is_allocation = true;
};

class Ledger {
 public:
  void allocate(const void* pointer, std::int64_t bytes, const CallSite& site);
  // Adds memory that was allocated before the ledger existed. A known block is assigned instead;
  // null and 0 bytes are ignored.
  void add_existing(const void* pointer, std::int64_t bytes, Component component,
                    std::int32_t module);
  // Records a release and ignores an unknown pointer. `call` is the number of the operator call
  // that releases it.
  void release(const void* pointer, std::int64_t call = -1);
  void clear();
  // Sets the purpose of a block. The first lasting purpose stays: a batch remains a batch even if
  // it is also saved for the backward pass. Only model_weights replaces any purpose.
  void assign(const void* pointer, Component component, std::int32_t module = -1);
  // Sets the purpose of the blocks that were allocated since event `first` in `phase`, are alive
  // and have no lasting purpose yet.
  void assign_survivors(std::int64_t first, Phase phase, Component component);
  // Returns a block that is alive, or null. The pointer is valid until the next allocation.
  const Block* find(const void* pointer) const;

  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }
  // Returns the index of the event that reached the peak, or -1 if nothing was allocated.
  std::int64_t peak_event() const { return peak_event_; }
  // Starts a new measurement of the peak.
  void reset_peak();

  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Event>& events() const { return events_; }

  // Returns the bytes by component just after an event, with the purposes that are known now.
  ComponentBytes bytes_after(std::int64_t event) const;

 private:
  std::int32_t add(const void* pointer, std::int64_t bytes, Component component,
                   const CallSite& site);

  mutable std::recursive_mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<Event> events_;
  std::unordered_map<const void*, std::int32_t> alive_;
  std::int64_t live_ = 0, peak_ = 0, peak_event_ = -1;
};

}  // namespace hasten::anatomy
