// File: cli/env_facts.h
// Gathers what `hasten env` prints, from the system's own files and calls.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::cli {

// Returns the facts in the order in which they are printed. A value is a text, a number, a list, or
// a map of these. `config_file` is empty if there is none. `named` is true if the user named the
// file: if it cannot be read, the function then throws Error. Otherwise the error becomes one of
// the facts.
nlohmann::ordered_json env_facts(const std::string& config_file, bool named);

}  // namespace hasten::cli
