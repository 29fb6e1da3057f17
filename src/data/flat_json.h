// File: data/flat_json.h (internal)
// Reads a line of a JSON lines file without building a document, which takes a quarter of the time.
//
//   std::vector<std::string> fields;
//   if (!read_flat_object(line, {"text", "label"}, fields)) parse_line(line);   // the general way
//
// Reads only the usual form: the keys of the table in its order, and strings, whole numbers,
// booleans and null. Every line that it accepts is valid JSON, and its fields are the same as from
// the general parser. The general parser also reports what is wrong with a line. Thread rule: pure
// function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hasten::detail {

// Returns false if the line has another form; `fields` then has no meaning. The line must be UTF-8.
bool read_flat_object(std::string_view line, const std::vector<std::string>& names,
                      std::vector<std::string>& fields);

}  // namespace hasten::detail
