// File: launch/signals.h (internal)
// The signals that the launcher takes as they come, from a file instead of a handler.
#pragma once

#include <signal.h>

#include <optional>

namespace hasten {

class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  int file() const { return file_; }
  std::optional<int> next();

 private:
  int file_ = -1;
  sigset_t before_{};
};

// Whether it asks the job to end.
inline bool is_end(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

}  // namespace hasten
