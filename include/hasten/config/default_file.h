// File: hasten/config/default_file.h
// Where the configuration file lies that nobody named: hasten's own, else Accelerate's.
//
//   const config::Environment environment = config::whole_environment();
//   config::default_file(environment);   // where `hasten config` writes
//   config::found_file(environment);     // what `hasten launch` reads; empty: there is none
//
// Needs no torch. Thread rule: pure functions, but found_file asks the file system. Nothing throws
// but for lack of memory.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// $HASTEN_HOME, $XDG_CACHE_HOME/hasten or ~/.cache/hasten, and in it default_config.yaml. Empty
// where not even HOME is set.
std::string default_file(const Environment& environment);

// Accelerate's: $HF_HOME/accelerate, $XDG_CACHE_HOME/huggingface/accelerate or
// ~/.cache/huggingface/accelerate, with default_config.yaml and default_config.json.
std::vector<std::string> accelerate_files(const Environment& environment);

// The first of all these that exists.
std::string found_file(const Environment& environment);

}  // namespace hasten::config
