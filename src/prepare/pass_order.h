// File: prepare/pass_order.h (internal)
// The order in which the models of a backward pass exchange their buckets. It is the same in all
// processes. Each c10d::Reducer keeps its own buckets in order, but the order of several reducers
// depends on the process's graph, and a process without items has a different graph.
//
//   PassOrder order;
//   const std::size_t first = order.register_model(), second = order.register_model();
//   order.send(second, last, exchange);     // waits until the first has sent its last bucket
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "prepare/gradient_exchange.h"

namespace hasten {

class PassOrder {
 public:
  // Registers the next model and returns its position. Models send in the order of positions.
  std::size_t register_model();
  // Starts the exchange now, or after every model at a lower position has sent its last bucket.
  // `last` says whether this is the last bucket of the model at `position`.
  ReductionFuture send(std::size_t position, bool last,
                       const std::function<ReductionFuture()>& exchange);
  // Ends the pass: starts the exchanges that still wait for a model that left parameters out.
  void release();

 private:
  struct PendingExchange {
    std::function<ReductionFuture()> exchange;
    ReductionFuture future;
    bool last;
  };
  void send_waiting();
  bool send_waiting_of(std::size_t position);  // true if the last bucket was sent

  std::mutex mutex_;
  std::vector<std::vector<PendingExchange>> waiting_;  // by position
  std::size_t sending_ = 0;                            // the position of the model that sends now
  bool released_ = false;
};

}  // namespace hasten
