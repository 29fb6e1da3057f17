// File: hasten/base/detail/export.h
// Marks what hasten's libraries export. They are compiled with hidden symbols, so a program can
// link only what a public header marks.
//
//   struct HASTEN_API Counter {
//     void add(std::int64_t rows);
//   };
//   HASTEN_API std::int64_t count_rows(const std::string& path);
//
// A class is marked if a function or static member of it is defined in a source file, if it has
// virtual functions, or if it is thrown. A function or variable is marked if it is defined in a
// source file. What a header defines needs no mark: templates, inline functions, constants,
// enumerations and plain structs. tests/docs/check_exports.py checks this. Thread rule: nothing
// here runs.
#pragma once

#define HASTEN_API [[gnu::visibility("default")]]
