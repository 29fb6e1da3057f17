// Rank 0 reads for all: what goes from it to each other process, a step at a time. Batches, the
// end, and what was thrown instead of a batch, which is then thrown in every process.
//
// Thread rule: one thread at a time in each process, over connections of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/batch_pipe.h"
#include "hasten/process/group.h"

namespace hasten::detail {

// Which batch, of which pass: processes that have gone different ways find it out here.
struct DispatchPlace {
  std::int64_t pass = 0, epoch = 0, number = 0;
  bool operator==(const DispatchPlace&) const = default;
};

class Dispatch {
 public:
  using Pack = std::function<at::Tensor(const AnyBatch&)>;
  using Unpack = std::function<AnyBatch(const at::Tensor&)>;

  // A collective.
  Dispatch(const Group& group, Pack pack, Unpack unpack);

  // From rank 0: each process's part of a step, by rank. The same for all: the end, or an error.
  // What a part cannot be packed for is sent to all as an error, and thrown.
  void send(const DispatchPlace& place, const std::vector<Made>& parts) const;
  void send_to_all(const DispatchPlace& place, const Made& made) const;
  // This process's part. Throws UsageError "data.dispatch-order" where rank 0 is at another place.
  Made receive(const DispatchPlace& place) const;

 private:
  at::Tensor body_of(const Made& made) const;

  Group group_;
  Pack pack_;
  Unpack unpack_;
};

}  // namespace hasten::detail
