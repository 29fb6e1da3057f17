// Functions for the sources of options that all commands share.
#pragma once

#include <string>
#include <vector>

#include "options/sources.h"

namespace hasten::config {

// Variables HASTEN_* that are not options of any command: those of the build, the tests, the
// anatomy and the launcher.
const std::vector<std::string>& internal_variables();

// The files that --config_file names; without the flag, those that HASTEN_CONFIG_FILE names.
std::vector<std::string> config_files(const std::vector<Assignment>& flags,
                                      const std::vector<Assignment>& variables);

// True if a flag takes the word behind it as its value. A boolean flag may stand alone and takes
// only a truth value or, if its option may be unset, "none". A flag without an option (null), such
// as --no_bf16, is read like a boolean one, so that a value behind it is an error.
bool takes_word(const Option* option, const std::string& word);

}  // namespace hasten::config
