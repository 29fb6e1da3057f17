// File: cli/env_facts.h
// Gathers what `hasten env` prints, from the system's own files and calls.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::cli {

// Keys are in the order of printing; a value is a text, a number, a list, or a map of these.
// `config_file`: empty if there is none. `named`: the user has named it, so that an unreadable file
// throws Error; otherwise its error is one of the facts.
nlohmann::ordered_json env_facts(const std::string& config_file, bool named);

}  // namespace hasten::cli
