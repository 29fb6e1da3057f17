#include "hasten/base/text.h"

#include <doctest/doctest.h>

#include "base/utf8.h"
#include "unit/peak_memory.h"

namespace base_text_test {

using namespace hasten;

TEST_CASE("text: a truncated text ends between two characters, or anywhere in other bytes") {
  CHECK(utf8_prefix("caf\xC3\xA9", 5) == "caf\xC3\xA9");
  CHECK(utf8_prefix("caf\xC3\xA9", 4) == "caf");
  CHECK(utf8_prefix("\xF0\x9F\x98\x80", 3) == "");
  CHECK(utf8_prefix("", 0) == "");
  CHECK(utf8_prefix(std::string(20, '\x80'), 10).size() == 10);
}

TEST_CASE("text: bytes are shown in powers of 1000 with three digits") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(1000) == "1.00 kB");
  CHECK(human_bytes(14'949'000'000) == "14.9 GB");
  CHECK(human_bytes(999'999) == "1.00 MB");
  CHECK(human_bytes(-1500) == "-1.50 kB");
}

TEST_CASE("text: durations carry over into minutes and hours") {
  CHECK(human_duration(57.82, true) == "0:57.82");
  CHECK(human_duration(59.999, true) == "1:00.00");
  CHECK(human_duration(59.999) == "1:00");
  CHECK(human_duration(3723) == "1:02:03");
}

TEST_CASE("text: doubles are printed so that they read back equal") {
  CHECK(str(0.1, ' ', 5e-05, " and ", 3, ' ', true) == "0.1 5e-05 and 3 true");
}

TEST_CASE("text: the nearest name counts a swap as one edit and rejects distant names") {
  const std::vector<std::string> names = {"learning_rate", "logging_steps", "seed"};
  CHECK(nearest("lerning_rate", names) == "learning_rate");
  CHECK(nearest("sede", names) == "seed");
  CHECK_FALSE(nearest("banana", names).has_value());
}

TEST_CASE(
    "text: the search for the nearest name is cheap for a word that is far longer than all names") {
  const std::string word(std::size_t{4} << 20, 'a');
  const auto before = test::peak_memory_kib();
  CHECK_FALSE(nearest(word, {"learning_rate", "logging_steps", "seed"}).has_value());
  CHECK(test::peak_memory_kib() - before < 64 << 10);
}

TEST_CASE("text: a table pads its columns and aligns numbers to the right") {
  CHECK(table({"name", "rows"}, {{"train", "4000"}, {"a longer one", "7"}}) ==
        "name          rows\n------------  ----\ntrain         4000\na longer one     7\n");
}

TEST_CASE("text: thousands are grouped") {
  CHECK(group_thousands(14949) == "14,949");
  CHECK(group_thousands(-1000000) == "-1,000,000");
  CHECK(group_thousands(999) == "999");
}

}  // namespace base_text_test
