// What every command does with the sources of its options.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// Variables HASTEN_* that are no options of any command: of the build, the tests, the anatomy and
// the launcher.
const std::vector<std::string>& other_variables();

// The files that --config_file names, else HASTEN_CONFIG_FILE's.
std::vector<std::string> named_files(const std::vector<Assignment>& flags,
                                     const std::vector<Assignment>& variables);

}  // namespace hasten::config
