#include "checkpoint/background_save.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/start_thread.h"

namespace hasten {

struct BackgroundSave::Job {
  std::function<void()> work;
  std::exception_ptr error;
  std::thread thread;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
  const pid_t process = getpid();

  // False in a fork, which does not have the thread, and where the mutex may be locked for ever.
  bool is_in_own_process() const { return getpid() == process; }

  void run() {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // frees what it holds
    const std::lock_guard lock(mutex);
    is_done = true;
    ended.notify_all();
  }
  bool done() {
    if (!is_in_own_process()) return true;
    const std::lock_guard lock(mutex);
    return is_done;
  }
  void wait_until_done() {
    if (!is_in_own_process()) return;
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return is_done; });
  }
};

namespace {

// The jobs in flight of this process. It is never destroyed, because exit() uses it.
struct JobsInFlight {
  std::mutex mutex;
  std::set<std::shared_ptr<void>> jobs;
};

JobsInFlight& jobs_in_flight() {
  static auto* const all = new JobsInFlight;
  return *all;
}

}  // namespace

BackgroundSave::BackgroundSave() = default;

BackgroundSave::~BackgroundSave() { static_cast<void>(wait()); }

// Waits for an earlier job.
void BackgroundSave::make_job(std::function<void()> work) {
  static_cast<void>(wait());
  job_ = std::make_shared<Job>();
  job_->work = std::move(work);
}

void BackgroundSave::run(std::function<void()> work) {
  make_job(std::move(work));
  job_->run();
}

void BackgroundSave::start(std::function<void()> work) {
  make_job(std::move(work));
  // exit() destroys it before the objects that were made earlier, such as LibTorch's.
  struct WaitAtExit {
    ~WaitAtExit() {
      std::unique_lock lock(jobs_in_flight().mutex);
      const auto jobs = jobs_in_flight().jobs;
      lock.unlock();
      for (const auto& job : jobs) static_cast<Job*>(job.get())->wait_until_done();
    }
  };
  static const WaitAtExit wait_at_exit;
  {
    const std::lock_guard lock(jobs_in_flight().mutex);
    jobs_in_flight().jobs.insert(job_);
  }
  job_->thread = start_thread([job = job_] { job->run(); });
  if (!job_->thread.joinable()) job_->run();
}

bool BackgroundSave::has_finished() const { return job_ != nullptr && job_->done(); }

std::exception_ptr BackgroundSave::wait() {
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  if (!job || !job->is_in_own_process()) return nullptr;  // jobs_in_flight() keeps it
  job->wait_until_done();
  if (job->thread.joinable()) job->thread.join();
  const std::lock_guard lock(jobs_in_flight().mutex);
  jobs_in_flight().jobs.erase(job);
  return job->error;
}

}  // namespace hasten
