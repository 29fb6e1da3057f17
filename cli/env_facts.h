// File: cli/env_facts.h
// Gathers what `hasten env` prints, from the system's own files and calls.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::cli {

// Returns the facts in the order in which they are printed; a value is a text, a number, a list, or
// a map of these. `config_file`: empty if there is none. `named`: the user has named the file.
// Throws Error if a named file cannot be read; for another one the error becomes a fact.
nlohmann::ordered_json env_facts(const std::string& config_file, bool named);

}  // namespace hasten::cli
