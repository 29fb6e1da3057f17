// File: base/signal_blocker.h (internal)
// Blocks all signals in this thread while the object exists. Threads that are started meanwhile
// block signals for as long as they run. The program's own threads handle the signals.
//
//   const SignalBlocker blocker;
//   std::thread thread(work);
#pragma once

#include <pthread.h>
#include <signal.h>

namespace hasten {

class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace hasten
