// File: tpu/module/scoped_variables.h (internal)
// Changes environment variables temporarily. It is part of the module libhasten_tpu.so, because the
// library itself changes no variables.
//
//   const ScopedVariables scoped({{"RANK", std::nullopt}, {"TPU_VISIBLE_CHIPS", "1"}});
//
// Thread rule: one thread at a time, while no other thread reads the environment.
#pragma once

#include <cstdlib>
#include <vector>

#include "tpu/device/tpu_job.h"

namespace hasten {

// Sets variables of the environment and restores them when it is destroyed.
class ScopedVariables {
 public:
  explicit ScopedVariables(const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) {
      const char* const value = std::getenv(variable.name.c_str());
      before_.push_back(
          {variable.name, value == nullptr ? std::nullopt : std::optional<std::string>(value)});
      set(variable);
    }
  }
  ScopedVariables(const ScopedVariables&) = delete;
  ScopedVariables& operator=(const ScopedVariables&) = delete;
  ~ScopedVariables() {
    for (const Variable& variable : before_) set(variable);
  }

 private:
  static void set(const Variable& variable) {
    if (variable.value) {
      setenv(variable.name.c_str(), variable.value->c_str(), 1);
    } else {
      unsetenv(variable.name.c_str());
    }
  }

  std::vector<Variable> before_;
};

}  // namespace hasten
