// The texts of JSONTestSuite (https://github.com/nst/JSONTestSuite, commit 1ef36fa), whose files
// and licence are in unit/base/data/json_test_suite. A name that begins with "y_" belongs to valid
// JSON, "n_" to invalid JSON, and "i_" to a text that a parser may accept or refuse.
//
//   for (const JsonText& text : json_test_suite()) check(text);
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "hasten/base/files.h"

namespace hasten::test {

struct JsonText {
  std::string name, text;
  bool is_valid() const { return name.starts_with("y_"); }
  bool is_invalid() const { return name.starts_with("n_"); }
};

// Returns all texts in the order of their names.
inline const std::vector<JsonText>& json_test_suite() {
  static const std::vector<JsonText> all = [] {
    std::vector<JsonText> texts;
    const std::filesystem::path folder = HASTEN_TEST_DATA "/unit/base/data/json_test_suite";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".json") continue;
      texts.push_back({entry.path().stem().string(), read_file(entry.path())});
    }
    // The suite's two large files, which are not stored.
    texts.push_back({"n_structure_100000_opening_arrays", std::string(100'000, '[')});
    std::string objects;
    for (int i = 0; i < 50'000; ++i) objects += "[{\"\":";
    texts.push_back({"n_structure_open_array_object", objects + "\n"});
    std::sort(texts.begin(), texts.end(),
              [](const JsonText& a, const JsonText& b) { return a.name < b.name; });
    return texts;
  }();
  return all;
}

}  // namespace hasten::test
