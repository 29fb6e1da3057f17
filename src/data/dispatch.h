// File: data/dispatch.h (internal)
// Rank 0 reads for all processes and sends each of them its part of every step. A message holds a
// batch, the end, or the exception thrown instead of a batch, which every process then throws.
//
// Thread rule: one thread at a time in each process. Uses connections of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/batch_producer.h"
#include "hasten/process/group.h"

namespace hasten::detail {

// Identifies a batch of a pass. It reveals that processes iterate in different ways.
struct BatchPosition {
  std::int64_t pass = 0, epoch = 0, number = 0;
  bool operator==(const BatchPosition&) const = default;
};

class BatchDispatcher {
 public:
  using Pack = std::function<at::Tensor(const ErasedBatch&)>;
  using Unpack = std::function<ErasedBatch(const at::Tensor&)>;

  // A collective: every process of the group must call it.
  BatchDispatcher(const Group& group, Pack pack, Unpack unpack);

  // On rank 0: sends each process its part of a step; `parts` is indexed by rank. If a part cannot
  // be packed, sends the error to all and throws it.
  void send(const BatchPosition& position, const std::vector<BatchResult>& parts) const;
  // On rank 0: sends the end or an error to all.
  void send_to_all(const BatchPosition& position, const BatchResult& result) const;
  // On other ranks: returns this process's part. Throws UsageError "data.dispatch-order" if rank 0
  // is at another batch.
  BatchResult receive(const BatchPosition& position) const;

 private:
  at::Tensor body_of(const BatchResult& result) const;

  Group group_;
  Pack pack_;
  Unpack unpack_;
};

}  // namespace hasten::detail
