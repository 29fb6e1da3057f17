// File: hasten/data/text_reader.h
// Tables of text: TSV, CSV and JSON lines, as columns of strings by name.
//
//   TextTable table = read_text_table("train.tsv");          // by its ending; or read_tsv, ...
//   const std::vector<std::string>& texts = table.column("text");
//   ClassColumn classes = table.classes("section");          // numbers and their names
//
// Text is UTF-8; a byte order mark in front and CRLF line ends are tolerated. The first line of TSV
// and CSV has the names, unless options.names gives them. TSV knows no quotes: a field is what
// stands between tabs. CSV has the quotes of RFC 4180: "a field with , or ""quotes"" or a line
// end". In JSON lines each line is an object with the same keys; numbers and booleans become their
// text and null becomes an empty one; blank lines are skipped.
// Thread rule: values; reading is safe from many threads.
// Throws IoError "io.*", and DataError "text.*" that begins with file:line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace hasten {

struct TextOptions {
  std::vector<std::string> names = {};    // of the columns, if no line has them (TSV and CSV)
  std::vector<std::string> columns = {};  // columns that must be there; others are read too
};

// The narrowest kind that holds for every text of a list.
enum class TextKind {
  whole_numbers,  // each a whole number
  numbers,        // each a finite number, and not all of them whole ones
  names,          // anything else
};
TextKind kind_of(const std::vector<std::string>& texts);

// Whole numbers that stand for names.
struct ClassColumn {
  std::vector<std::int64_t> ids;   // one a row
  std::vector<std::string> names;  // names[id]
};

class TextTable {
 public:
  TextTable(std::string file, std::vector<std::string> names);

  const std::string& file() const noexcept { return file_; }
  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(lines_.size()); }
  const std::vector<std::string>& names() const noexcept { return names_; }
  // "text.missing-column", with the nearest name.
  const std::vector<std::string>& column(const std::string& name) const;
  // The line of the file on which a row begins, from 1.
  std::int64_t line(std::int64_t row) const { return lines_.at(static_cast<std::size_t>(row)); }

  // A column of numbers: "text.number" names the line of one that is none, with the hint.
  std::vector<std::int64_t> integers(const std::string& name) const;
  std::vector<double> numbers(const std::string& name, const std::string& hint = "") const;

  // A column of class names. Blanks around a name do not belong to it, and "-100" stands for no
  // class: it is no name, and its number is -100, which losses and metrics ignore. The error
  // "text.class" gives the line of an empty name and of an unknown one.
  //
  // The names that occur: sorted by their value where all of them are numbers, else by their bytes.
  std::vector<std::string> class_names(const std::string& name) const;
  // The number that `ids` has for each row's name.
  std::vector<std::int64_t> class_ids(const std::string& name,
                                      const std::map<std::string, std::int64_t>& ids,
                                      const std::string& hint = "") const;
  // The same with names whose place in `known` is their number; where `known` is empty, with
  // those of class_names.
  ClassColumn classes(const std::string& name, const std::vector<std::string>& known = {}) const;

  // One field a column.
  void push_back(std::vector<std::string> fields, std::int64_t line);

 private:
  [[noreturn]] void fail(const char* code, const std::string& column, std::size_t row,
                         const std::string& got, const std::string& expected,
                         const std::string& hint) const;

  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> columns_;
  std::vector<std::int64_t> lines_;
};

TextTable read_tsv(const std::filesystem::path& path, const TextOptions& options = {});
TextTable read_csv(const std::filesystem::path& path, const TextOptions& options = {});
TextTable read_jsonl(const std::filesystem::path& path, const TextOptions& options = {});
// By the ending: .tsv, .csv, .jsonl or .json (JSON lines).
TextTable read_text_table(const std::filesystem::path& path, const TextOptions& options = {});

}  // namespace hasten
