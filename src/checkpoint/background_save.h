// File: checkpoint/background_save.h (internal)
// The writing of one checkpoint on a thread of its own, while training goes on.
//
//   BackgroundSave save;
//   save.start([writes] { writes->run(); });
//   if (save.has_finished()) report(save.wait());
//   save.wait();                                  // before the next one starts
//
// The destructor waits, and so does the end of the process through exit(), so that a save that has
// begun is complete unless the process is killed. Signals are blocked on the thread: the program's
// handlers run on its other threads. Thread rule: the training thread; the work runs on a thread of
// its own.
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
  // True from start() until wait().
  bool is_in_flight() const { return job_ != nullptr; }
  // True if wait() would return at once.
  bool has_finished() const;
  // Waits for the work, and returns what it has thrown; null if it succeeded or if there is none.
  std::exception_ptr wait();

 private:
  struct Job;
  std::shared_ptr<Job> job_;
};

}  // namespace hasten
