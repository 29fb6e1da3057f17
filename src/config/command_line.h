// Functions for the sources of options that all commands share.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// Variables HASTEN_* that are not options of any command: those of the build, the tests, the
// anatomy and the launcher.
const std::vector<std::string>& other_variables();

// The files that --config_file names; without the flag, those that HASTEN_CONFIG_FILE names.
std::vector<std::string> named_files(const std::vector<Assignment>& flags,
                                     const std::vector<Assignment>& variables);

}  // namespace hasten::config
