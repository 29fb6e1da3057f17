// File: unit/thread_shortage.h
// A process that can start no more threads, or only a few.
//
//   const ThreadShortage shortage;
//   CHECK(code_of([&] { loop.start(links); }) == "io.thread");
//
// Each new thread gets a large stack, and the limit of the address space leaves room for `left` of
// these stacks. Thread rule: no other thread starts threads meanwhile.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <optional>

#include "unit/address_space_limit.h"

namespace hasten {

class ThreadShortage {
 public:
  explicit ThreadShortage(std::size_t left = 0) {
    pthread_getattr_default_np(&attributes_before_);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, kStackBytes);
    pthread_setattr_default_np(&large);
    pthread_attr_destroy(&large);
    limit_.emplace(left * kStackBytes + kStackBytes / 2);
  }
  ThreadShortage(const ThreadShortage&) = delete;
  ThreadShortage& operator=(const ThreadShortage&) = delete;
  ~ThreadShortage() {
    limit_.reset();
    pthread_setattr_default_np(&attributes_before_);
    pthread_attr_destroy(&attributes_before_);
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 20;

  pthread_attr_t attributes_before_;
  std::optional<AddressSpaceLimit> limit_;
};

}  // namespace hasten
