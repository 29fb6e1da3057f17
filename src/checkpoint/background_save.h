// File: checkpoint/background_save.h (internal)
// Writes one checkpoint on a separate thread while training continues.
//
//   BackgroundSave save;
//   save.start([writes] { writes->run(); });
//   if (save.has_finished()) report(save.wait());
//   save.wait();                                  // before the next one starts
//
// The destructor waits for the save, and so does exit(). A save that has begun is therefore
// completed unless the process is killed. A fork of the process does not wait for it, because it
// does not have the thread. Signals are blocked on the thread: the program's handlers run on its
// other threads. Thread rule: call it on the training thread; the work runs on a separate thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>

namespace hasten {

class BackgroundSave {
 public:
  BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();

  // Starts the work, which may throw. Only one may be in flight: call wait() before the next one.
  // If the system has no thread left, the work is done before start() returns.
  void start(std::function<void()> work);
  // Does the work on the calling thread. wait() then returns its exception, as after start().
  void run(std::function<void()> work);
  // True from start() until wait().
  bool is_in_flight() const { return job_ != nullptr; }
  // True if wait() would return at once.
  bool has_finished() const;
  // Waits for the work and returns the exception that it threw; null if it succeeded or if there is
  // no work.
  std::exception_ptr wait();

 private:
  struct Job;
  void make_job(std::function<void()> work);

  std::shared_ptr<Job> job_;
};

}  // namespace hasten
