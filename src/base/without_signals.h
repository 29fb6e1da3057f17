// File: base/without_signals.h (internal)
// Blocks all signals in this thread during its lifetime, and in threads started meanwhile for as
// long as they run: signals are for the program's own threads.
//
//   const WithoutSignals without;
//   std::thread thread(work);
#pragma once

#include <pthread.h>
#include <signal.h>

namespace hasten {

class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace hasten
