// File: machine/default_file.h (internal)
// Finds the configuration file that applies if none is named: hasten's own, or else Accelerate's.
//
//   const config::Environment environment = config::whole_environment();
//   config::default_file(environment);        // the file that `hasten config` writes
//   config::find_default_file(environment);   // the file that `hasten launch` reads, or ""
//
// Needs no torch. Thread rule: pure functions, except that find_default_file looks at the file
// system. They throw only if memory runs out.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/detail/environment.h"

namespace hasten::config {

// Returns default_config.yaml in $HASTEN_HOME, else in $XDG_CACHE_HOME/hasten, else in
// ~/.cache/hasten. The result is empty if HOME is not set either.
std::string default_file(const Environment& environment);

// Returns Accelerate's default_config.yaml and default_config.json in $HF_HOME/accelerate, else in
// $XDG_CACHE_HOME/huggingface/accelerate, else in ~/.cache/huggingface/accelerate.
std::vector<std::string> accelerate_default_files(const Environment& environment);

// Returns the first of these files that exists, hasten's before Accelerate's; empty if none does.
std::string find_default_file(const Environment& environment);

// Return the file that a command reads or writes: `named` if it is not empty, else the first file
// in HASTEN_CONFIG_FILE, else find_default_file() to read and default_file() to write.
std::string file_to_read(const std::string& named, const Environment& environment);
std::string file_to_write(const std::string& named, const Environment& environment);

}  // namespace hasten::config
