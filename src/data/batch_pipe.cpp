#include "data/batch_pipe.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/without_signals.h"

namespace hasten::detail {
namespace {

Made attempt(const MakeBatch& make, std::int64_t number) {
  const c10::NoGradGuard no_grad;  // data needs no gradients, on this thread or on a worker
  try {
    return make(number);
  } catch (...) {
    return {.error = std::current_exception()};
  }
}

class InlinePipe : public BatchPipe {
 public:
  InlinePipe(MakeBatch make, std::int64_t first, std::int64_t end)
      : make_(std::move(make)), next_(first), end_(end) {}

  Made next() override {
    if (next_ >= end_) return {};
    Made made = attempt(make_, next_++);
    if (made.is_end() || made.error) end_ = next_;
    return made;
  }

 private:
  MakeBatch make_;
  std::int64_t next_, end_;
};

// Each worker uses one LibTorch thread, like a worker process of PyTorch's DataLoader: N workers
// times all cores would slow down the training that they feed. LibTorch's own setter would change
// MKL for the whole process, so this calls OpenMP's, which is per thread; OpenMP is in the process
// because LibTorch is built on it.
void use_one_thread() {
  at::get_num_threads();  // a thread's first call sets the number; ours must come after it
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
    set(1);
  }
}

void prepare_worker() {
  pthread_setname_np(pthread_self(), "hasten-loader");
  use_one_thread();
}

// A ring of `ahead` places. Batch n goes to place n % ahead, which is free once batch n - ahead has
// been taken, so a thread may begin batch n if n < taken + ahead.
class WorkerPipe : public BatchPipe {
 public:
  WorkerPipe(MakeBatch make, std::int64_t first, std::int64_t end, std::int64_t threads,
             std::int64_t ahead, bool faithful)
      : make_(std::move(make)),
        faithful_(faithful),
        taken_(first),
        begun_(first),
        end_(end),
        ring_(static_cast<std::size_t>(ahead)) {
    const WithoutSignals without;
    for (std::int64_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this](std::stop_token stop) { work(stop); });
    }
  }

  Made next() override {
    std::unique_lock lock(mutex_);
    std::optional<Made>& place = place_of(taken_);
    made_.wait(lock, [&] { return place.has_value() || taken_ >= end_; });
    if (taken_ >= end_) return {};
    Made made = std::move(*place);
    place.reset();
    ++taken_;
    room_.notify_all();
    return made;
  }

 private:
  std::optional<Made>& place_of(std::int64_t batch) {
    return ring_[static_cast<std::size_t>(batch) % ring_.size()];
  }
  bool can_begin() const {
    return begun_ >= end_ || begun_ < taken_ + static_cast<std::int64_t>(ring_.size());
  }

  void work(std::stop_token stop) {
    prepare_worker();
    std::unique_lock lock(mutex_);
    while (room_.wait(lock, stop, [&] { return can_begin(); }) &&
           (faithful_ || !stop.stop_requested()) && begun_ < end_) {
      const std::int64_t batch = begun_++;
      lock.unlock();
      Made made = attempt(make_, batch);
      lock.lock();
      if (made.is_end()) end_ = std::min(end_, batch);
      if (made.error) end_ = std::min(end_, batch + 1);
      place_of(batch) = std::move(made);
      made_.notify_all();
    }
  }

  MakeBatch make_;
  const bool faithful_;
  std::mutex mutex_;
  std::condition_variable made_;      // a place was filled, or the end was found
  std::condition_variable_any room_;  // a place was emptied, or the threads must stop
  std::int64_t taken_, begun_, end_;
  std::vector<std::optional<Made>> ring_;
  std::vector<std::jthread> threads_;  // last: joined before the members they use are destroyed
};

}  // namespace

std::unique_ptr<BatchPipe> make_pipe(MakeBatch make, std::int64_t first, std::int64_t end,
                                     std::int64_t threads, std::int64_t ahead) {
  if (threads == 0) return std::make_unique<InlinePipe>(std::move(make), first, end);
  return std::make_unique<WorkerPipe>(std::move(make), first, end, threads, ahead,
                                      /*faithful=*/false);
}

std::unique_ptr<BatchPipe> make_faithful_pipe(MakeBatch make, std::int64_t first,
                                              std::int64_t ahead) {
  return std::make_unique<WorkerPipe>(std::move(make), first, unknown_end, /*threads=*/1, ahead,
                                      /*faithful=*/true);
}

}  // namespace hasten::detail
