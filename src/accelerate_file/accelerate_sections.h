// File: accelerate_file/accelerate_sections.h (internal)
// Handles the parts of Accelerate's files that are not options: maps for engines, keys for TPUs and
// SageMaker. Misspelt names are errors, as at the top level of the file. A value that would change
// the run is refused. The rest is ignored, with one notice per section.
//
//   // `files` has the result of read_option_file() for each file, weakest first.
//   remove_accelerate_keys(table, files, notices);
//   resolve(table, files, notices);  // only options are left
//
// Thread rule: pure functions. Throws ConfigError.
#pragma once

#include <string>
#include <vector>

#include "options/sources.h"

namespace hasten::config {

// Removes the keys that are not options from `files`, which are ordered from weakest to strongest.
void remove_accelerate_keys(const OptionTable& table, std::vector<std::vector<Assignment>>& files,
                            std::vector<std::string>& notices);

// Throws ConfigError if a name in the file is unknown.
void check_accelerate_keys(const OptionTable& table, const std::vector<Assignment>& file);

// False if the value is null, false, no, none, an empty text, list or map, or a list of empty
// texts. Otherwise true.
bool is_set(const Value& value);

}  // namespace hasten::config
