// Runs the GPU kernels on the host, one block after another. Each thread of a block has its own
// context and runs until it waits for the other threads, as on a GPU.
//
//   const Grid grid{.blocks = 4, .threads = 64};
//   emulate(kernel, grid);                 // throws if the threads do not meet, or for a wrong id
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "device/cuda/kernels/row_calls.h"

namespace hasten::gpu {

// The threads of one block.
class EmulatedThreads {
 public:
  explicit EmulatedThreads(int count)
      : threads_(static_cast<std::size_t>(count)), numbers_(static_cast<std::size_t>(count)) {
    for (Thread& thread : threads_) thread.stack = std::make_unique_for_overwrite<char[]>(kStack);
  }

  // Calls run(thread) in each thread.
  template <class Run>
  void run(const Run& run) {
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[i];
      thread.has_ended = false;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.get();
      thread.context.uc_stack.ss_size = kStack;
      thread.context.uc_link = &scheduler_;
      begin_ = [](const void* body, int number) { (*static_cast<const Run*>(body))(number); };
      body_ = &run;
      starting() = this;
      // makecontext() declares its function without parameters, and passes it these integers.
      makecontext(&thread.context, reinterpret_cast<void (*)()>(&EmulatedThreads::enter), 1,
                  static_cast<int>(i));
    }
    while (resume_all() > 0) {
    }
    if (has_wrong_id) throw std::out_of_range("a kernel was given a wrong id");
  }

  int count() const { return static_cast<int>(threads_.size()); }
  // Switches to the scheduler until all other threads have called this function, too.
  void wait(int thread) {
    swapcontext(&threads_[static_cast<std::size_t>(thread)].context, &scheduler_);
  }
  float* shared() { return shared_; }
  // Returns the sum of the numbers of all threads.
  float sum(int thread, float x) {
    return reduce_over_threads(thread, x, [](float a, float b) { return a + b; });
  }
  float maximum(int thread, float x) {
    return reduce_over_threads(thread, x, [](float a, float b) { return std::max(a, b); });
  }

  bool has_wrong_id = false;

 private:
  static constexpr std::size_t kStack = 64 << 10;
  struct Thread {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    bool has_ended = false;
  };

  template <class Combine>
  float reduce_over_threads(int thread, float x, Combine combine) {
    numbers_[static_cast<std::size_t>(thread)] = x;
    wait(thread);
    float all = numbers_[0];
    for (std::size_t i = 1; i < numbers_.size(); ++i) all = combine(all, numbers_[i]);
    wait(thread);
    return all;
  }

  static EmulatedThreads*& starting() {
    static EmulatedThreads* threads = nullptr;
    return threads;
  }
  static void enter(int thread) {
    EmulatedThreads& all = *starting();
    all.begin_(all.body_, thread);
    all.threads_[static_cast<std::size_t>(thread)].has_ended = true;
  }

  // Runs every thread until it waits or ends, and returns how many wait.
  int resume_all() {
    int waiting = 0, ended = 0;
    for (Thread& thread : threads_) {
      if (!thread.has_ended) swapcontext(&scheduler_, &thread.context);
      ++(thread.has_ended ? ended : waiting);
    }
    if (waiting > 0 && ended > 0)
      throw std::logic_error("some threads of a block have ended while others wait for them");
    return waiting;
  }

  std::vector<Thread> threads_;
  std::vector<float> numbers_;
  float shared_[kSharedFloats] = {};
  ucontext_t scheduler_{};
  void (*begin_)(const void*, int) = nullptr;
  const void* body_ = nullptr;
};

// One thread's view of its block (thread_rows.h).
class EmulatedBlock {
 public:
  EmulatedBlock(EmulatedThreads& all, int thread, Index index, Index count)
      : all_(all), thread_(thread), index_(index), count_(count) {}

  int thread() const { return thread_; }
  int threads() const { return all_.count(); }
  Index index() const { return index_; }
  Index count() const { return count_; }
  void sync() const { all_.wait(thread_); }
  template <int kCount>
  void sum(float (&numbers)[kCount]) const {
    for (float& each : numbers) each = all_.sum(thread_, each);
  }
  float maximum(float x) const { return all_.maximum(thread_, x); }
  float* shared() const { return all_.shared(); }
  void check_id(bool holds) const {
    if (!holds) all_.has_wrong_id = true;
  }

 private:
  EmulatedThreads& all_;
  int thread_;
  Index index_, count_;
};

template <class Kernel>
void emulate(const Kernel& kernel, const Grid& grid) {
  EmulatedThreads threads(grid.threads);
  for (Index block = 0; block < grid.blocks; ++block)
    threads.run([&](int thread) { kernel(EmulatedBlock(threads, thread, block, grid.blocks)); });
}

}  // namespace hasten::gpu
