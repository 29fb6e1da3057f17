// File: track/log_names.h (internal)
// The name that trackers give to a value of the Trainer's log: "eval_loss" becomes "eval/loss",
// "test_loss" becomes "test/loss", and "loss" becomes "train/loss", as in Hugging Face's callbacks.
// Thread rule: a pure function.
#pragma once

#include <string>

#include "hasten/base/text.h"

namespace hasten {

inline std::string grouped_name(const std::string& name) {
  const bool has_group = starts_with(name, "eval_") || starts_with(name, "test_");
  return has_group ? name.substr(0, 4) + "/" + name.substr(5) : "train/" + name;
}

}  // namespace hasten
