// The bytes of a text file, checked, and the lines and fields in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::detail {

[[noreturn]] void fail_text(const char* code, const std::string& file, std::int64_t line,
                            std::string what, std::string got = "", std::string expected = "",
                            std::string hint = "");

// The file without its byte order mark and the line ends at its end. DataError "text.empty",
// "text.nul" or "text.utf8", with the line.
std::string read_text(const std::filesystem::path& path);

struct Record {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // on which it begins, from 1
};

// One record after the other.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual std::optional<Record> next() = 0;
};

// Lines, without their ends; the fields of a line by a separator, or the line as one field.
class LineReader : public RecordReader {
 public:
  LineReader(std::string_view text, std::optional<char> separator)
      : rest_(text), separator_(separator) {}
  std::optional<Record> next() override;

 private:
  std::string_view rest_;
  std::optional<char> separator_;
  std::int64_t line_ = 0;
};

// RFC 4180, with LF line ends allowed.
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
