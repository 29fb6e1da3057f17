// File: data/text_lines.h (internal)
// Reads and checks a text file, and splits it into lines and fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::detail {

[[noreturn]] void fail_text(const char* code, const std::string& file, std::int64_t line,
                            const std::string& what, std::string got = "",
                            std::string expected = "", std::string hint = "");

// Returns the text of the file without its byte order mark and without line ends at its end. Throws
// DataError "text.empty", "text.nul" or "text.utf8", with the line.
std::string read_text(const std::filesystem::path& path);

struct Record {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // on which the record begins, from 1
};

// Returns the records one by one, then nothing.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual std::optional<Record> next() = 0;
};

// Reads lines, without their ends. The fields of a line are separated by the separator; without
// one, the line is one field.
class LineReader : public RecordReader {
 public:
  LineReader(std::string_view text, std::optional<char> separator)
      : rest_(text), separator_(separator) {}
  std::optional<Record> next() override;
  // Returns the next line as a view of the text.
  std::optional<std::string_view> next_line();
  // The number of the line that was returned last.
  std::int64_t line() const { return line_; }

 private:
  std::string_view rest_;
  std::optional<char> separator_;
  std::int64_t line_ = 0;
};

// Reads CSV as in RFC 4180; LF line ends are allowed too. `text` and `file` must outlive the
// reader.
class CsvReader : public RecordReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}
  std::optional<Record> next() override;

 private:
  std::string field();
  std::string quoted_field();
  bool at_line_end() const;
  void skip_line_end();

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace hasten::detail
