// File: options/yaml_scalar.h (internal)
// Writes texts as YAML scalars that YAML 1.1 (Python's) and YAML 1.2 both read as the same texts.
//
//   yaml_scalar("bert-base");     // bert-base
//   yaml_scalar("no");            // 'no', which YAML 1.1 would read as false
//   yaml_scalar("1e-3");          // '1e-3', which YAML 1.2 would read as a number
//
// Throws nothing but lack of memory. Thread rule: a pure function.
#pragma once

#include <string>

namespace hasten::config {

// The text, in quotes if it could be read as something else: a word such as no or null, a number, a
// date, or a text with characters that have a meaning in YAML.
std::string yaml_scalar(const std::string& text);

}  // namespace hasten::config
