// File: prepare/pass_order.h (internal)
// The order in which the models of a backward pass exchange their buckets, the same in all
// processes. Each c10d::Reducer keeps its own buckets in order, but which of several comes first
// depends on a process's graph, and a process without items has another graph.
//
//   PassOrder order;
//   const std::size_t first = order.take_place(), second = order.take_place();
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
  // Returns the place of the next model. Models send in the order of their places.
  std::size_t take_place();
  // Begins the exchange now, or when it is the turn of the model at `place`. The model's `last`
  // bucket ends its turn.
  Exchanged send(std::size_t place, bool last, const std::function<Exchanged()>& exchange);
  // Ends the pass: begins what still waits for a model that left parameters out.
  void release();

 private:
  struct Waiting {
    std::function<Exchanged()> exchange;
    Exchanged promised;
    bool last;
  };
  void send_waiting();
  bool send_waiting_of(std::size_t place);  // true: its last one was among them

  std::mutex mutex_;
  std::vector<std::vector<Waiting>> waiting_;  // by place
  std::size_t turn_ = 0;
  bool released_ = false;
};

}  // namespace hasten
