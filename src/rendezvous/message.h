// File: rendezvous/message.h (internal)
// The bytes of one message: numbers in eight bytes, little end first, texts with their length
// before them.
//
//   const std::string bytes = Packer().number(3).text("key").bytes();
//   Unpacker fields(bytes);
//   fields.number(); fields.text();
//
// Throws DataError "rendezvous.message" where a message ends too early or has something behind its
// end: it came over the network. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::rendezvous {

// No key and no value of a training job comes near it; a length beyond is a lie.
inline constexpr std::size_t kLongestMessage = std::size_t{64} << 20;

class Packer {
 public:
  Packer& number(std::int64_t value);
  Packer& text(std::string_view value);
  Packer& texts(const std::vector<std::string>& values);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number();
  std::string text();
  std::vector<std::string> texts();
  void end() const;  // nothing may be left

 private:
  std::string_view take(std::uint64_t size);
  std::string_view rest_;
};

}  // namespace hasten::rendezvous
