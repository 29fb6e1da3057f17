// Parses the header. A state machine that knows the whole grammar reads the JSON event by event
// (SAX), so that depth, types and repeated keys are checked at once and no JSON tree is built.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::safetensors {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxDimensions = 64;
constexpr const char* kDamagedHint =
    "the file is damaged or its writer is faulty: fetch it again, or save it again";

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size() && i < 8; ++i) {
    out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return out + (shape.size() > 8 ? ", ...]" : "]");
}

[[noreturn]] void throw_name_twice(const std::string& name, const std::string& file) {
  throw DataError(
      "safetensors.duplicate",
      {.what = file + ": the name " + quoted(name) + " appears twice", .hint = kDamagedHint});
}

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, std::uint64_t file_size)
      : file_(file), file_size_(file_size) {}

  Header take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        return enter(State::names);
      case State::name_value:
        return enter(in_metadata_ ? State::metadata : State::fields);
      default:
        unexpected("an object");
    }
  }
  bool end_object() override {
    if (state_ == State::fields) finish_entry();
    return enter(state_ == State::names ? State::end : State::names);
  }
  bool key(string_t& key) override {
    switch (state_) {
      case State::names:
        return start_name(key);
      case State::metadata:
        return start_metadata(key);
      default:
        return start_field(key);
    }
  }
  bool string(string_t& value) override {
    if (state_ == State::metadata_value) {
      keep(memory_of(key_, value));
      header_.metadata[key_] = value;
      return enter(State::metadata);
    }
    if (state_ != State::dtype) unexpected("a string");
    entry_.dtype = dtype_named(value);
    if (entry_.dtype == nullptr) fail_dtype(value);
    return enter(State::fields);
  }
  bool start_array(std::size_t) override {
    if (state_ == State::shape) return enter(State::shape_numbers);
    if (state_ == State::offsets) return enter(State::offset_numbers);
    unexpected("an array");
  }
  bool end_array() override {
    if (state_ == State::offset_numbers && offsets_.size() != 2) {
      fail("safetensors.offsets", "data_offsets", str(offsets_.size(), " numbers"), "2 numbers");
    }
    return enter(State::fields);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape_numbers) {
      if (entry_.shape.size() == kMaxDimensions) {
        fail("safetensors.shape", "shape", "more than 64 dimensions", "");
      }
      if (value > std::numeric_limits<std::int64_t>::max()) {
        fail("safetensors.shape", "shape", std::to_string(value), "a number below 2^63");
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ != State::offset_numbers) unexpected("a number");
    if (offsets_.size() == 2) {
      fail("safetensors.offsets", "data_offsets", "more than 2 numbers", "2 numbers");
    }
    offsets_.push_back(value);
    return true;
  }
  // The parser calls these for a sign, a fraction or too many digits.
  bool number_integer(number_integer_t value) override {
    unexpected(str("the negative number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    unexpected("the number " + text.substr(0, 40));
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw DataError("safetensors.header",
                    {.what = str(file_, ": the header is not valid JSON, at byte ", position + 8),
                     .hint = kDamagedHint});
  }

 private:
  enum class State {
    start,
    names,
    name_value,
    metadata,
    metadata_value,
    fields,
    dtype,
    shape,
    shape_numbers,
    offsets,
    offset_numbers,
    end
  };

  bool enter(State state) {
    state_ = state;
    return true;
  }

  // Counts the memory of what the header keeps, before it takes that memory.
  void keep(std::uint64_t memory) {
    memory_ += memory;
    check_memory(memory_, file_size_, file_);
  }

  bool start_name(const std::string& name) {
    in_metadata_ = name == "__metadata__";
    if (in_metadata_ && std::exchange(has_metadata_, true)) throw_name_twice(name, file_);
    entry_ = Entry{.name = name};
    offsets_.clear();
    fields_.clear();
    return enter(State::name_value);
  }
  bool start_metadata(const std::string& key) {
    if (header_.metadata.contains(key)) {
      throw DataError("safetensors.duplicate",
                      {.what = file_ + ": the metadata " + quoted(key) + " appears twice",
                       .hint = kDamagedHint});
    }
    key_ = key;
    return enter(State::metadata_value);
  }
  bool start_field(const std::string& field) {
    if (std::find(fields_.begin(), fields_.end(), field) != fields_.end()) {
      fail("safetensors.duplicate", "the key " + quoted(field) + " appears twice", "", "");
    }
    fields_.push_back(field);
    if (field == "dtype") return enter(State::dtype);
    if (field == "shape") return enter(State::shape);
    if (field == "data_offsets") return enter(State::offsets);
    fail("safetensors.header", "unknown key", quoted(field), "dtype, shape or data_offsets");
  }
  void finish_entry() {
    if (fields_.size() != 3) {
      std::vector<std::string> got;
      for (const std::string& field : fields_) got.push_back(field);
      fail("safetensors.header", "keys", "[" + join(got, ", ") + "]",
           "dtype, shape and data_offsets");
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    keep(memory_of(entry_));
    header_.entries.push_back(std::move(entry_));
  }

  [[noreturn]] void fail(const char* code, const std::string& what, std::string got,
                         std::string expected) const {
    throw DataError(code, {.what = file_ + ": tensor " + quoted(entry_.name) + ": " + what,
                           .got = std::move(got),
                           .expected = std::move(expected),
                           .hint = kDamagedHint});
  }
  [[noreturn]] void fail_dtype(const std::string& got) const {
    std::vector<std::string> known;
    for (const Dtype& dtype : dtypes()) known.emplace_back(dtype.name);
    fail("safetensors.dtype", "dtype", quoted(got), "one of " + join(known, ", "));
  }
  [[noreturn]] void unexpected(const std::string& got) const {
    switch (state_) {
      case State::start:
        fail_header(got, "an object");
      case State::name_value:
        fail("safetensors.header", "entry", got, "an object");
      case State::metadata_value:
        fail_header(got + " as the metadata " + quoted(key_), "a string");
      case State::dtype:
        fail("safetensors.dtype", "dtype", got, "a string");
      case State::shape:
        fail("safetensors.shape", "shape", got, "an array of numbers");
      case State::shape_numbers:
        fail("safetensors.shape", "shape", got, "non-negative integers");
      case State::offsets:
        fail("safetensors.offsets", "data_offsets", got, "an array of 2 numbers");
      default:
        fail("safetensors.offsets", "data_offsets", got, "2 non-negative integers");
    }
  }
  [[noreturn]] void fail_header(const std::string& got, const std::string& expected) const {
    throw DataError(
        "safetensors.header",
        {.what = file_ + ": the header", .got = got, .expected = expected, .hint = kDamagedHint});
  }

  const std::string& file_;
  std::uint64_t file_size_;
  std::uint64_t memory_ = 0;
  Header header_;
  State state_ = State::start;
  bool in_metadata_ = false, has_metadata_ = false;
  std::string key_;
  Entry entry_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::string> fields_;
};

// Sorting the finished entries takes less memory than a set of the names beside them.
void check_names(const Header& header, const std::string& file) {
  std::vector<const std::string*> names;
  names.reserve(header.entries.size());
  for (const Entry& entry : header.entries) names.push_back(&entry.name);
  std::sort(names.begin(), names.end(),
            [](const std::string* a, const std::string* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(),
                         [](const std::string* a, const std::string* b) { return *a == *b; });
  if (twice != names.end()) throw_name_twice(**twice, file);
}

// Returns a tensor's number of bytes, or nullopt for 2^57 elements and more. Empty dimensions count
// as 1 in this limit, as in LibTorch's strides.
std::optional<std::uint64_t> bytes_of(const Entry& entry) {
  std::uint64_t elements = 1;
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(
            elements, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)), &elements)) {
      return std::nullopt;
    }
  }
  if (elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 64) {
    return std::nullopt;
  }
  if (empty) return 0;
  return elements * static_cast<std::uint64_t>(entry.dtype->bits) / 8;
}

// Checks that the entries, sorted by offset, follow each other without gaps or overlaps, and that
// each has the size of its dtype and shape. Returns the end of the last entry.
std::uint64_t check_layout(const Header& header, const std::string& file) {
  std::uint64_t end = 0;
  for (const Entry& entry : header.entries) {
    const std::string what = file + ": tensor " + quoted(entry.name) + ": ";
    const std::string offsets = str("[", entry.begin, ", ", entry.end, "]");
    if (entry.begin != end || entry.end < entry.begin) {
      throw DataError(
          "safetensors.offsets",
          {.what = what + "data_offsets",
           .got = offsets,
           .expected = str("a start of ", end,
                           " (the end of the previous tensor) and an end that is not before it"),
           .hint = kDamagedHint});
    }
    const bool odd = entry.dtype->bits == 4 && (entry.shape.empty() || entry.shape.back() % 2 != 0);
    const std::optional<std::uint64_t> bytes = odd ? std::nullopt : bytes_of(entry);
    if (!bytes) {
      throw DataError("safetensors.shape",
                      {.what = what + "shape",
                       .got = shape_text(entry.shape),
                       .expected = odd ? "an even last dimension, as F4 holds two values a byte"
                                       : "a size below 2^57",
                       .hint = kDamagedHint});
    }
    if (entry.end - entry.begin != *bytes) {
      throw DataError(
          "safetensors.size",
          {.what = what + "size",
           .got = str(entry.end - entry.begin, " bytes in data_offsets ", offsets),
           .expected = str(*bytes, " bytes for ", entry.dtype->name, " ", shape_text(entry.shape)),
           .hint = kDamagedHint});
    }
    end = entry.end;
  }
  return end;
}

// Returns what to do about bytes that cannot be the head of a safetensors file.
const char* hint_for_other_format(std::string_view bytes) {
  const bool is_archive = bytes.substr(0, 4) == "PK\x03\x04";
  return is_archive ? "this is an archive, as torch.save and torch::save write it: hasten convert "
                      "makes a safetensors file of it"
                    : "this is not a safetensors file, or it is damaged";
}

// Returns the length in the first 8 bytes, checked against the size of the file.
std::uint64_t header_length(std::string_view bytes, const std::string& file) {
  if (bytes.size() < 8) {
    throw DataError("safetensors.truncated", {.what = file,
                                              .got = str(bytes.size(), " bytes"),
                                              .expected = "at least 8",
                                              .hint = kDamagedHint});
  }
  std::uint64_t length = 0;
  for (int byte = 7; byte >= 0; --byte) {
    length = length << 8 | static_cast<unsigned char>(bytes[byte]);
  }
  if (length > kMaxHeaderBytes) {
    throw DataError("safetensors.header", {.what = file + ": header length",
                                           .got = str(length, " bytes"),
                                           .expected = "at most 100,000,000",
                                           .hint = hint_for_other_format(bytes)});
  }
  if (length > bytes.size() - 8) {
    throw DataError("safetensors.truncated", {.what = file + ": header",
                                              .got = str(bytes.size() - 8, " bytes"),
                                              .expected = str(length, " bytes"),
                                              .hint = kDamagedHint});
  }
  return length;
}

// Rejects texts that the JSON parser accepts but the format does not: a text that begins with a
// byte order mark or blanks instead of an object, padding other than spaces, and a NUL, which the
// parser treats as the end of the text.
void check_json_bounds(std::string_view json, const std::string& file) {
  const bool begins = !json.empty() && json.front() == '{';
  const std::size_t last = json.find_last_not_of(' ');
  if (begins && json[last] == '}' && json.find('\0') == std::string_view::npos) return;
  throw DataError("safetensors.header",
                  {.what = file + ": the header",
                   .got = begins ? "a NUL, or bytes other than spaces after the object"
                                 : "no object at the start",
                   .expected = "a JSON object that starts with { and is padded with spaces",
                   .hint = kDamagedHint});
}

}  // namespace

Header parse_header(std::string_view bytes, const std::string& file) {
  const std::uint64_t length = header_length(bytes, file);
  const std::string_view json = bytes.substr(8, length);
  check_json_bounds(json, file);
  HeaderReader reader(file, bytes.size());
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  Header header = reader.take();
  header.data_begin = 8 + length;
  check_names(header, file);
  std::sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::uint64_t end = check_layout(header, file);
  const std::uint64_t data = bytes.size() - header.data_begin;
  if (end != data) {
    throw DataError(end > data ? "safetensors.truncated" : "safetensors.size",
                    {.what = file + ": data",
                     .got = str(data, " bytes"),
                     .expected = str(end, " bytes, the end of the last tensor"),
                     .hint = kDamagedHint});
  }
  return header;
}

}  // namespace hasten::safetensors
