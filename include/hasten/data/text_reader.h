// File: hasten/data/text_reader.h
// Reads tables of text: TSV, CSV, JSON lines, Arrow and Parquet, as columns of strings by name.
//
//   TextTable table = read_text_table("train.tsv");          // by its ending; or read_tsv, ...
//   const std::vector<std::string>& texts = table.column("text");
//   ClassColumn classes = table.classes("section");          // numbers and their names
//
// Text is UTF-8, optionally with a byte order mark and CRLF line ends. The first line of TSV and
// CSV has the names, unless TextOptions::names gives them. TSV has no quotes: a field is everything
// between two tabs. CSV has the quotes of RFC 4180: "a field with , or ""quotes"" or a line end".
// In JSON lines each line is an object with the same keys; numbers and booleans become their text,
// null becomes an empty text, and blank lines are skipped. The columns of Arrow and Parquet data
// (hasten/data/arrow_dataset.h) become texts in the same way, and a class becomes its name.
// Throws IoError "io.*", DataError "text.*" with a message that begins with file:line, and
// UsageError "text.ending" for a file of unknown format.
// Thread rule: values; reading is safe on many threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

struct TextOptions {
  std::vector<std::string> names = {};    // Column names, if no line has them (TSV and CSV).
  std::vector<std::string> columns = {};  // Required columns; others are read too.
  // For JSON lines: if true, an array or an object becomes its JSON text; if false, it is an error.
  bool structured = false;
};

// The narrowest kind that fits all texts of a list.
enum class TextKind {
  whole_numbers,  // Each is a whole number.
  numbers,        // Each is a finite number, not all are whole.
  names,          // Anything else.
};
HASTEN_API TextKind kind_of(const std::vector<std::string>& texts);

// Class numbers and their names.
struct ClassColumn {
  std::vector<std::int64_t> ids;   // One per row.
  std::vector<std::string> names;  // names[id] is the name of a class.
};

class HASTEN_API TextTable {
 public:
  TextTable(std::string file, std::vector<std::string> names);

  const std::string& file() const noexcept { return file_; }
  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(lines_.size()); }
  const std::vector<std::string>& names() const noexcept { return names_; }
  // Returns one column. Throws "text.missing-column", which suggests the nearest name.
  const std::vector<std::string>& column(const std::string& name) const;
  // The line of the file on which a row begins, from 1.
  std::int64_t line(std::int64_t row) const { return lines_.at(static_cast<std::size_t>(row)); }

  // Return a column as numbers. Throws "text.number" with the line of a field that is not a number,
  // and the hint.
  std::vector<std::int64_t> integers(const std::string& name) const;
  std::vector<double> numbers(const std::string& name, const std::string& hint = "") const;

  // A column of class names. Blanks around a name are ignored. "-100" is not a name and means no
  // class; its number is -100, which losses and metrics ignore. Throws "text.class" with the line
  // of an empty or unknown name.
  //
  // class_names returns the names that occur, sorted by value if all of them are numbers, otherwise
  // by their bytes; or the declared names.
  std::vector<std::string> class_names(const std::string& name) const;
  // Maps each row's name to its number in `ids`.
  std::vector<std::int64_t> class_ids(const std::string& name,
                                      const std::map<std::string, std::int64_t>& ids,
                                      const std::string& hint = "") const;
  // Does the same, with the index of a name in `known` as its number. If `known` is empty, the
  // names are those of class_names.
  ClassColumn classes(const std::string& name, const std::vector<std::string>& known = {}) const;
  // Sets the names of a column's classes by number, for a file that defines them.
  void declare_classes(const std::string& name, std::vector<std::string> classes);

  // Adds a row with one field per column, which begins on this line of the file.
  void push_back(std::vector<std::string> fields, std::int64_t line);

 private:
  [[noreturn]] void fail(const char* code, const std::string& column, std::size_t row,
                         const std::string& got, const std::string& expected,
                         const std::string& hint) const;

  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> columns_;
  std::vector<std::int64_t> lines_;
  std::map<std::string, std::vector<std::string>> declared_classes_;
};

HASTEN_API TextTable read_tsv(const std::filesystem::path& path, const TextOptions& options = {});
HASTEN_API TextTable read_csv(const std::filesystem::path& path, const TextOptions& options = {});
HASTEN_API TextTable read_jsonl(const std::filesystem::path& path, const TextOptions& options = {});
// Reads a plain text: each line that is not blank is a row of the only column.
HASTEN_API TextTable read_text_lines(const std::filesystem::path& path,
                                     const std::string& column = "text");
// Selects the format by the ending: .tsv, .csv, .jsonl or .json (JSON lines), .arrow, .parquet; or
// reads a folder of `save_to_disk`.
HASTEN_API TextTable read_text_table(const std::filesystem::path& path,
                                     const TextOptions& options = {});

}  // namespace hasten
