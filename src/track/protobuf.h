// File: track/protobuf.h (internal)
// Writes and reads the wire format of Protocol Buffers, as far as event files of TensorBoard use
// it.
//
//   ProtobufWriter value;
//   value.bytes(1, "loss");
//   value.single(2, 0.41f);
//   ProtobufReader reader(value.text());
//   while (reader.next()) { if (reader.field() == 1) tag = reader.bytes(); }
//
// A reader stops at the first byte that is not valid. Throws nothing but std::bad_alloc. Thread
// rule: values. Source: https://protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace hasten {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

class ProtobufWriter {
 public:
  void integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void number(int field, double value) {
    key(field, 1);
    fixed(value);
  }
  void single(int field, float value) {
    key(field, 5);
    fixed(value);
  }
  void bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    text_ += value;
  }
  void message(int field, const ProtobufWriter& value) { bytes(field, value.text()); }
  void numbers(int field, std::span<const double> values) {
    key(field, 2);
    varint(values.size_bytes());
    text_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<unsigned>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  template <class Number>
  void fixed(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string text_;
};

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view text) : rest_(text) {}

  // Moves to the next field. Returns false at the end, and at bytes that are not valid.
  bool next() {
    std::uint64_t key = 0;
    if (rest_.empty() || !varint(key)) return false;
    field_ = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        value_ = {};
        return varint(integer_);
      case 1:
        return take(8);
      case 2: {
        std::uint64_t size = 0;
        return varint(size) && take(size);
      }
      case 5:
        return take(4);
      default:
        return false;
    }
  }
  int field() const { return field_; }
  // Each returns the value of the field, which is 0 or empty if the field has another type.
  std::int64_t integer() const { return static_cast<std::int64_t>(integer_); }
  double number() const { return fixed<double>(); }
  float single() const { return fixed<float>(); }
  std::string_view bytes() const { return value_; }

 private:
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool take(std::uint64_t size) {
    integer_ = 0;
    if (size > rest_.size()) return false;
    value_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  template <class Number>
  Number fixed() const {
    Number value = 0;
    if (value_.size() == sizeof value) std::memcpy(&value, value_.data(), sizeof value);
    return value;
  }

  std::string_view rest_, value_;
  std::uint64_t integer_ = 0;
  int field_ = 0;
};

}  // namespace hasten
