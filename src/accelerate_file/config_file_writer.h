// File: accelerate_file/config_file_writer.h (internal)
// Converts between a document of keys and values and the text of a configuration file. Thread rule:
// pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::config {

using Document = nlohmann::ordered_json;

// YAML that every reader reads as the same values: words that YAML 1.1 reads as something else,
// such as no, are quoted.
std::string yaml_text(const Document& document);
std::string json_text(const Document& document);

// Reads a file's text into a document. Scalars get the type that YAML 1.1 gives them, but plain
// words of the keys in `texts` stay words, so that `mixed_precision: no` is not false. `path` is
// for messages, and .json at its end means JSON. Throws ConfigError.
Document read_document(const std::string& text, const std::string& path,
                       const std::vector<std::string>& texts);

}  // namespace hasten::config
