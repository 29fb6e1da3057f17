// The exported architectures of tests/oracle/data/architectures, and the record of what the tests
// measure on them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace hasten::oracle {

inline const std::filesystem::path kArchitectures = HASTEN_TEST_DATA "/oracle/data/architectures";

// Returns the model, the dynamic sizes and remarks of each architecture, by its name.
inline const nlohmann::json& architectures() {
  static const auto entries =
      nlohmann::json::parse(std::ifstream(kArchitectures / "architectures.json"));
  return entries;
}

// Writes a value for the table of docs/exported.md into results.json, if
// HASTEN_RECORD_ARCHITECTURES is set.
inline void record(const std::string& name, const std::string& what, const nlohmann::json& value) {
  if (std::getenv("HASTEN_RECORD_ARCHITECTURES") == nullptr) return;
  const std::filesystem::path file = kArchitectures / "results.json";
  nlohmann::json all = nlohmann::json::object();
  if (std::filesystem::exists(file)) all = nlohmann::json::parse(std::ifstream(file));
  all[name][what] = value;
  std::ofstream(file) << all.dump(1) << '\n';
}

}  // namespace hasten::oracle
