#include "data/flat_json.h"

#include <cstddef>

namespace hasten::detail {
namespace {

class FlatObjectReader {
 public:
  explicit FlatObjectReader(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {}

  bool accept(char wanted) {
    skip_blanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_blanks();
    return at_ == end_;
  }
  // Compares a key as it is written. A key with an escape matches no name.
  bool key(std::string_view name) {
    if (!accept('"') || static_cast<std::size_t>(end_ - at_) <= name.size()) return false;
    if (std::string_view(at_, name.size()) != name || at_[name.size()] != '"') return false;
    if (name.find_first_of("\"\\") != std::string_view::npos) return false;
    at_ += name.size() + 1;
    return accept(':');
  }
  bool value(std::string& field) {
    skip_blanks();
    field.clear();
    if (at_ == end_) return false;
    if (*at_ == '"') return string(field);
    if (*at_ == 't') return literal("true", field);
    if (*at_ == 'f') return literal("false", field);
    if (*at_ != 'n') return whole_number(field);
    if (!literal("null", field)) return false;
    field.clear();
    return true;
  }

 private:
  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }

  bool string(std::string& field) {
    for (++at_;;) {
      const char* const from = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20)
        ++at_;
      field.append(from, at_);
      if (at_ == end_) return false;
      if (*at_ == '"') return ++at_, true;
      if (*at_ != '\\' || ++at_ == end_ || !escape(field)) return false;
    }
  }
  bool escape(std::string& field) {
    constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    const std::size_t found = names.find(*at_++);  // the general parser handles \u
    if (found == std::string_view::npos) return false;
    field += values[found];
    return true;
  }
  bool literal(std::string_view expected, std::string& field) {
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).substr(0, expected.size()) !=
        expected)
      return false;
    at_ += expected.size();
    field = expected;
    return true;
  }
  // Accepts numbers of up to 18 digits. The field is the number as it is written.
  bool whole_number(std::string& field) {
    const char* const from = at_;
    if (*at_ == '-') ++at_;
    const char* const digits = at_;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    const std::ptrdiff_t count = at_ - digits;
    if (count < 1 || count > 18) return false;
    if (*digits == '0' && (count > 1 || digits != from)) return false;
    if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
    field.assign(from, at_);
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace

bool read_flat_object(std::string_view line, const std::vector<std::string>& names,
                      std::vector<std::string>& fields) {
  FlatObjectReader reader(line);
  fields.resize(names.size());
  if (!reader.accept('{')) return false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && !reader.accept(',')) return false;
    if (!reader.key(names[i]) || !reader.value(fields[i])) return false;
  }
  return reader.accept('}') && reader.at_end();
}

}  // namespace hasten::detail
