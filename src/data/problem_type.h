// File: data/problem_type.h (internal)
// The problem types of text classification. The names are the same as in Transformers, and so is
// the rule that picks one if config.json does not.
//
//   problem_type_of("", 3, labels.is_floating_point());   // "single_label_classification"
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

namespace hasten {

inline constexpr const char* kRegression = "regression";
inline constexpr const char* kSingleLabel = "single_label_classification";
inline constexpr const char* kMultiLabel = "multi_label_classification";

inline std::string problem_type_of(const std::string& configured, std::int64_t num_labels,
                                   bool floating_labels) {
  if (!configured.empty()) return configured;
  if (num_labels == 1) return kRegression;
  return floating_labels ? kMultiLabel : kSingleLabel;
}

}  // namespace hasten
