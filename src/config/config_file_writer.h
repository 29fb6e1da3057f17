// File: config/config_file_writer.h (internal)
// A document of keys and values as the text of a configuration file. Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hasten::config {

using Document = nlohmann::ordered_json;

// YAML that every reader takes for the same values: words that YAML 1.1 reads as something else,
// such as no, stand in quotes.
std::string yaml_text(const Document& document);
std::string json_text(const Document& document);

// The document of a file. Scalars get the type that YAML 1.1 gives them; `texts` are keys whose
// plain words stay words, so that `mixed_precision: no` is not false. Throws ConfigError.
Document read_document(const std::string& text, const std::string& path,
                       const std::vector<std::string>& texts);

}  // namespace hasten::config
