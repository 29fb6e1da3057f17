#include "data/batch_producer.h"

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

#include "base/start_thread.h"

namespace hasten::detail {
namespace {

BatchResult attempt(const BatchMaker& make, std::int64_t number) {
  const c10::NoGradGuard no_grad;  // data needs no gradients, on this thread or on a worker
  try {
    return make(number);
  } catch (...) {
    return {.error = std::current_exception()};
  }
}

class InlineProducer : public BatchProducer {
 public:
  InlineProducer(BatchMaker make, std::int64_t first, std::int64_t end)
      : make_(std::move(make)), next_(first), end_(end) {}

  BatchResult next() override {
    if (next_ >= end_) return {};
    BatchResult result = attempt(make_, next_++);
    if (result.is_end() || result.error) end_ = next_;
    return result;
  }

 private:
  BatchMaker make_;
  std::int64_t next_, end_;
};

// Each worker uses one LibTorch thread, like a worker process of PyTorch's DataLoader: if each
// worker used all cores, they would slow down the training that they feed. LibTorch's own setter
// would change MKL for the whole process, so this calls OpenMP's setter, which is per thread.
// OpenMP is in the process because LibTorch is built on it.
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

// A ring of `ahead` slots. Batch n goes to slot n % ahead, which is free once batch n - ahead has
// been taken, so a thread may begin batch n if n < taken + ahead.
class WorkerProducer : public BatchProducer {
 public:
  WorkerProducer(BatchMaker make, std::int64_t first, std::int64_t end, std::int64_t threads,
                 std::int64_t ahead, bool drains_on_stop)
      : make_(std::move(make)),
        drains_on_stop_(drains_on_stop),
        taken_(first),
        begun_(first),
        end_(end),
        ring_(static_cast<std::size_t>(ahead)) {
    for (std::int64_t i = 0; i < threads; ++i) {
      std::jthread thread =
          start_thread<std::jthread>([this](std::stop_token stop) { work(stop); });
      if (thread.joinable()) threads_.push_back(std::move(thread));
    }
    // Fewer threads make the same batches.
    if (threads_.empty()) throw_no_thread("io.thread", "makes the batches of a loader");
  }

  BatchResult next() override {
    std::unique_lock lock(mutex_);
    std::optional<BatchResult>& slot = slot_of(taken_);
    batch_ready_.wait(lock, [&] { return slot.has_value() || taken_ >= end_; });
    if (taken_ >= end_) return {};
    BatchResult result = std::move(*slot);
    slot.reset();
    ++taken_;
    slot_free_.notify_all();
    return result;
  }

 private:
  std::optional<BatchResult>& slot_of(std::int64_t batch) {
    return ring_[static_cast<std::size_t>(batch) % ring_.size()];
  }
  bool can_begin() const {
    return begun_ >= end_ || begun_ < taken_ + static_cast<std::int64_t>(ring_.size());
  }

  void work(std::stop_token stop) {
    prepare_worker();
    std::unique_lock lock(mutex_);
    while (slot_free_.wait(lock, stop, [&] { return can_begin(); }) &&
           (drains_on_stop_ || !stop.stop_requested()) && begun_ < end_) {
      const std::int64_t batch = begun_++;
      lock.unlock();
      BatchResult result = attempt(make_, batch);
      lock.lock();
      if (result.is_end()) end_ = std::min(end_, batch);
      if (result.error) end_ = std::min(end_, batch + 1);
      slot_of(batch) = std::move(result);
      batch_ready_.notify_all();
    }
  }

  BatchMaker make_;
  const bool drains_on_stop_;
  std::mutex mutex_;
  std::condition_variable batch_ready_;    // a slot was filled, or the end was found
  std::condition_variable_any slot_free_;  // a slot was emptied, or the threads must stop
  std::int64_t taken_, begun_, end_;
  std::vector<std::optional<BatchResult>> ring_;
  std::vector<std::jthread> threads_;  // last: joined before the members they use are destroyed
};

}  // namespace

std::unique_ptr<BatchProducer> make_producer(BatchMaker make, std::int64_t first, std::int64_t end,
                                             std::int64_t threads, std::int64_t ahead) {
  if (threads == 0) return std::make_unique<InlineProducer>(std::move(make), first, end);
  return std::make_unique<WorkerProducer>(std::move(make), first, end, threads, ahead,
                                          /*drains_on_stop=*/false);
}

std::unique_ptr<BatchProducer> make_draining_producer(BatchMaker make, std::int64_t first,
                                                      std::int64_t ahead) {
  return std::make_unique<WorkerProducer>(std::move(make), first, kUnknownEnd, /*threads=*/1, ahead,
                                          /*drains_on_stop=*/true);
}

}  // namespace hasten::detail
