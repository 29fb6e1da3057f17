// Environment variables that a test sets temporarily.
#pragma once

#include <cstdlib>

namespace hasten {

struct ScopedVariable {
  ScopedVariable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { ::unsetenv(name); }
  const char* name;
};

// The variables that torchrun sets if a job has only one process.
struct ScopedTorchrunVariables {
  ScopedTorchrunVariables(const char* job, const char* restarts)
      : name("TORCHELASTIC_RUN_ID", job), restarts("TORCHELASTIC_RESTART_COUNT", restarts) {}
  ScopedVariable rank{"RANK", "0"}, world{"WORLD_SIZE", "1"}, name, restarts;
};

}  // namespace hasten
