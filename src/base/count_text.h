// File: base/count_text.h (internal)
// Writes a number with a noun in the singular or plural.
//
//   count_text(1, "row");     // "1 row"
//   count_text(3, "row");     // "3 rows"
//
// Thread rule: a pure function. Throws only std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>

namespace hasten {

// `noun` gets an s in the plural.
inline std::string count_text(std::int64_t count, const char* noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

}  // namespace hasten
