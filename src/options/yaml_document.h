// File: options/yaml_document.h (internal)
// Reads a configuration file as one YAML document, and reports errors with their place.
//
//   const YAML::Node root = load_yaml_document(text, path);
//   yaml_location(root["rate"], path);       // "run.yaml:3"
//
// Throws ConfigError "config.*". Thread rule: pure functions.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace hasten::config {

// Parses a text. Messages call it `name`.
YAML::Node load_yaml_document(const std::string& text, const std::string& name);
// Returns the file and the line of a node.
std::string yaml_location(const YAML::Node& node, const std::string& name);

[[noreturn]] void throw_syntax(const std::string& where, const std::string& got,
                               const std::string& expected);
[[noreturn]] void throw_duplicate(const std::string& where, const std::string& key,
                                  const std::string& first);

}  // namespace hasten::config
