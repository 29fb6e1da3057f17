// File: rendezvous/message.h (internal)
// Encodes a message as bytes. A number has eight bytes, the lowest first. A text is preceded by its
// length.
//
//   const std::string bytes = Packer().number(3).text("key").bytes();
//   Unpacker fields(bytes);
//   const std::int64_t number = fields.number();
//   const std::string text = fields.text();
//
// Throws DataError "rendezvous.message" if a message ends too early or is longer than its fields,
// since it comes over the network. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::rendezvous {

// The limit in bytes. No key or value of a training job is nearly that long, so a longer message is
// an error.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;

class Packer {
 public:
  Packer& number(std::int64_t value);
  Packer& text(std::string_view value);
  Packer& texts(const std::vector<std::string>& values);
  Packer& append_packed(std::string_view fields);  // Appends another Packer's bytes.
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number();
  std::string text() { return std::string(text_view()); }
  std::string_view text_view();  // Refers to the message's bytes.
  std::vector<std::string> texts();
  bool is_at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  void expect_end() const;  // Throws if bytes are left.

 private:
  std::string_view take(std::uint64_t size);
  std::string_view rest_;
};

}  // namespace hasten::rendezvous
