// File: cli/env_facts.h
// What `hasten env` tells, gathered from the system's own files and calls.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::cli {

// Keys in the order they are told; a value is a text, a number, a list, or a map of these.
// `config_file`: empty for none. `named`: by the user, so that it has to be readable.
nlohmann::ordered_json env_facts(const std::string& config_file, bool named);

}  // namespace hasten::cli
