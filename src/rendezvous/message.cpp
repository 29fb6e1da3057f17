#include "rendezvous/message.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {

Packer& Packer::number(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (int byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>(bits >> (8 * byte));
  return *this;
}

Packer& Packer::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_ += value;
  return *this;
}

Packer& Packer::texts(const std::vector<std::string>& values) {
  number(static_cast<std::int64_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

Packer& Packer::append_packed(std::string_view fields) {
  bytes_ += fields;
  return *this;
}

std::string_view Unpacker::take(std::uint64_t size) {
  if (size > rest_.size()) {
    throw DataError("rendezvous.message", {.what = "the rest of a truncated message",
                                           .got = str(rest_.size(), " bytes"),
                                           .expected = str("at least ", size, " bytes")});
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::int64_t Unpacker::number() {
  std::uint64_t bits = 0;
  const std::string_view bytes = take(8);
  for (std::size_t byte = 0; byte < 8; ++byte)
    bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[byte])) << (8 * byte);
  return static_cast<std::int64_t>(bits);
}

std::string_view Unpacker::text_view() { return take(static_cast<std::uint64_t>(number())); }

std::vector<std::string> Unpacker::texts() {
  const auto count = static_cast<std::uint64_t>(number());
  std::vector<std::string> values;
  // Each text takes at least eight bytes, so a wrong count throws at the end of the message.
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(text());
  return values;
}

void Unpacker::expect_end() const {
  if (rest_.empty()) return;
  throw DataError("rendezvous.message", {.what = "extra bytes at the end of a message",
                                         .got = str(rest_.size(), " bytes")});
}

}  // namespace hasten::rendezvous
