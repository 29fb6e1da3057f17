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
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

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
    getrlimit(RLIMIT_AS, &limit_before_);
    rlimit limit = limit_before_;
    limit.rlim_cur = used_bytes() + left * kStackBytes + kStackBytes / 2;
    setrlimit(RLIMIT_AS, &limit);
  }
  ThreadShortage(const ThreadShortage&) = delete;
  ThreadShortage& operator=(const ThreadShortage&) = delete;
  ~ThreadShortage() {
    setrlimit(RLIMIT_AS, &limit_before_);
    pthread_setattr_default_np(&attributes_before_);
    pthread_attr_destroy(&attributes_before_);
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 20;

  // The size of this process's address space.
  static std::size_t used_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

  pthread_attr_t attributes_before_;
  rlimit limit_before_{};
};

}  // namespace hasten
