// Messages over the network: a truncated or too long message is refused, even if its length fields
// claim that it is valid.
#include "rendezvous/message.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "unit/code_of.h"

namespace rendezvous_message_test {

using namespace hasten;
using namespace hasten::rendezvous;

TEST_CASE("message: fields come back, and every shorter message is refused") {
  const std::vector<std::string> texts = {"", "a", std::string("\0b", 2)};
  const std::string inner = Packer().number(7).bytes();
  const std::string bytes =
      Packer().number(-3).text("key").texts(texts).append_packed(inner).bytes();
  const auto read = [&](std::string_view message) {
    Unpacker fields(message);
    CHECK(fields.number() == -3);
    CHECK(fields.text() == "key");
    CHECK(fields.texts() == texts);
    CHECK(fields.rest() == inner);
    CHECK(fields.number() == 7);
    CHECK(fields.is_at_end());
    fields.expect_end();
  };
  read(bytes);
  const auto read_quietly = [](std::string_view message) {
    Unpacker fields(message);
    fields.number();
    fields.text_view();
    fields.texts();
    fields.number();
  };
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK(code_of([&] { read_quietly(std::string_view(bytes).substr(0, size)); }) ==
          "rendezvous.message");
  }
}

TEST_CASE("message: extra bytes, and lengths beyond the message, are refused") {
  CHECK(code_of([] { Unpacker("x").expect_end(); }) == "rendezvous.message");
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{1} << 62, std::int64_t{9}}) {
    CAPTURE(size);
    const std::string bytes = Packer().number(size).append_packed("12345678").bytes();
    CHECK(code_of([&] { Unpacker(bytes).text(); }) == "rendezvous.message");
    CHECK(code_of([&] { Unpacker(bytes).texts(); }) == "rendezvous.message");
  }
}

}  // namespace rendezvous_message_test
