// File: rendezvous/message.h (internal)
// The bytes of one message: numbers in eight bytes, the lowest first, and texts with their length
// before them.
//
//   const std::string bytes = Packer().number(3).text("key").bytes();
//   Unpacker fields(bytes);
//   fields.number(); fields.text();
//
// Throws DataError "rendezvous.message" if a message ends too early or is longer than its fields:
// it came over the network. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::rendezvous {

// No key and no value of a training job is nearly as long; a longer length is not believed.
inline constexpr std::size_t kLongestMessage = std::size_t{64} << 20;

class Packer {
 public:
  Packer& number(std::int64_t value);
  Packer& text(std::string_view value);
  Packer& texts(const std::vector<std::string>& values);
  Packer& packed(std::string_view fields);  // the bytes of another Packer
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number();
  std::string text() { return std::string(view()); }
  std::string_view view();  // a text that stays where it is
  std::vector<std::string> texts();
  bool is_at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  void end() const;  // nothing may be left

 private:
  std::string_view take(std::uint64_t size);
  std::string_view rest_;
};

}  // namespace hasten::rendezvous
