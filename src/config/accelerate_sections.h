// File: config/accelerate_sections.h (internal)
// What Accelerate's files hold beside options: maps for engines, keys for TPUs and SageMaker. A
// misspelt name is an error as it is at the top of the file; what would change the run is refused;
// the rest is told, one line a section, and ignored.
//
//   take_accelerate_keys(table, files, notices);      // files: read_file() of each, weakest first
//   resolve(table, files, notices);                   // what is left are options
//
// Thread rule: pure functions. Throws ConfigError.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

void take_accelerate_keys(const OptionTable& table, std::vector<std::vector<Assignment>>& files,
                          std::vector<std::string>& notices);

// Only that every name of a file is known.
void check_accelerate_names(const OptionTable& table, const std::vector<Assignment>& file);

// Whether a value says anything: not null, false, no, an empty text, list or map, or a list
// of empty texts.
bool says_something(const Value& value);

}  // namespace hasten::config
