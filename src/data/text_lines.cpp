#include "data/text_lines.h"

#include <algorithm>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

std::int64_t line_of(std::string_view text, std::size_t position) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n');
}

void check_characters(std::string_view text, const std::string& file) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\0') {
      fail_text("text.nul", file, line_of(text, at), "a NUL byte", "", "",
                "check that this is a UTF-8 text file; UTF-16 contains such bytes");
    }
    const Utf8Sequence character = next_utf8_sequence(text.substr(at));
    if (!character.valid) {
      fail_text("text.utf8", file, line_of(text, at), "bytes that are not UTF-8", "", "",
                "convert the file to UTF-8, for example with iconv");
    }
    at += character.size;
  }
}

}  // namespace

void fail_text(const char* code, const std::string& file, std::int64_t line,
               const std::string& what, std::string got, std::string expected, std::string hint) {
  throw DataError(code, {.what = str(file, ':', line, ": ", what),
                         .got = std::move(got),
                         .expected = std::move(expected),
                         .hint = std::move(hint)});
}

std::string read_text(const std::filesystem::path& path) {
  std::string text = read_file(path);
  if (starts_with(text, "\xEF\xBB\xBF")) text.erase(0, 3);
  check_characters(text, path.string());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (trim(text).empty()) fail_text("text.empty", path.string(), 1, "the file is empty");
  return text;
}

std::optional<std::string_view> LineReader::next_line() {
  if (rest_.empty()) return std::nullopt;
  const std::size_t end = rest_.find('\n');
  std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  ++line_;
  return line;
}

std::optional<Record> LineReader::next() {
  const std::optional<std::string_view> line = next_line();
  if (!line) return std::nullopt;
  Record record{.line = line_};
  if (separator_) {
    record.fields = split(*line, *separator_);
  } else {
    record.fields.emplace_back(*line);
  }
  return record;
}

bool CsvReader::at_line_end() const {
  return text_[at_] == '\n' ||
         (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n');
}

void CsvReader::skip_line_end() {
  at_ += text_[at_] == '\r' ? 2 : 1;
  ++line_;
}

std::string CsvReader::quoted_field() {
  const std::int64_t begins = line_;
  std::string value;
  for (++at_;;) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) break;
    const std::string_view run = text_.substr(at_, quote - at_);
    value += run;
    line_ += std::count(run.begin(), run.end(), '\n');
    at_ = quote + 1;
    if (at_ >= text_.size() || text_[at_] != '"') {
      if (at_ >= text_.size() || text_[at_] == ',' || at_line_end()) return value;
      fail_text("text.quotes", file_, line_, "text after a closing quote",
                std::string(1, text_[at_]), "a comma or the end of the line",
                "write a quote inside a quoted field twice");
    }
    value += '"';
    ++at_;
  }
  fail_text("text.quotes", file_, begins, "a quote that is never closed", "", "", "");
}

std::string CsvReader::field() {
  if (at_ < text_.size() && text_[at_] == '"') return quoted_field();
  const std::size_t start = at_;
  while (at_ < text_.size() && text_[at_] != ',' && !at_line_end()) {
    if (text_[at_] == '"') {
      fail_text("text.quotes", file_, line_, "a quote inside a field that does not begin with one",
                "", "", "quote the whole field, and write the quotes inside it twice");
    }
    ++at_;
  }
  return std::string(text_.substr(start, at_ - start));
}

std::optional<Record> CsvReader::next() {
  if (at_ >= text_.size()) return std::nullopt;
  Record record{.line = line_};
  for (;;) {
    record.fields.push_back(field());
    if (at_ >= text_.size()) return record;
    if (text_[at_] == ',') {
      ++at_;
      continue;
    }
    skip_line_end();
    return record;
  }
}

}  // namespace hasten::detail
