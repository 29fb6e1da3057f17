// Environment variables that a test sets temporarily.
#pragma once

#include <cstdlib>

namespace hasten {

struct Variable {
  Variable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name); }
  const char* name;
};

// The variables that torchrun sets if a job has only one process.
struct AttemptOfJob {
  AttemptOfJob(const char* job, const char* restarts)
      : name("TORCHELASTIC_RUN_ID", job), restarts("TORCHELASTIC_RESTART_COUNT", restarts) {}
  Variable rank{"RANK", "0"}, world{"WORLD_SIZE", "1"}, name, restarts;
};

}  // namespace hasten
