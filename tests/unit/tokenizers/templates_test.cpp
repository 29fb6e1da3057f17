#include "tokenizers/templates.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"

namespace tokenizers_templates_test {

using namespace hasten;
using namespace hasten::tokenizers;

namespace {
using Lengths = std::pair<std::size_t, std::size_t>;
}

TEST_CASE("texts that fit are not truncated") {
  for (const Truncation truncation :
       {Truncation::longest_first, Truncation::only_first, Truncation::only_second})
    CHECK(kept_lengths(3, 4, 7, truncation) == Lengths{3, 4});
  CHECK(kept_lengths(300, 400, 7, Truncation::none) == Lengths{300, 400});
}

TEST_CASE("longest_first keeps a short text, and divides the room between long ones") {
  const auto kept = [](std::size_t first, std::size_t second, std::size_t room) {
    return kept_lengths(first, second, room, Truncation::longest_first);
  };
  CHECK(kept(20, 0, 8) == Lengths{8, 0});
  CHECK(kept(3, 20, 10) == Lengths{3, 7});
  CHECK(kept(20, 3, 10) == Lengths{7, 3});
  CHECK(kept(5, 20, 10) == Lengths{5, 5});
  CHECK(kept(20, 30, 10) == Lengths{5, 5});
  CHECK(kept(20, 30, 11) == Lengths{5, 6});  // the odd token goes to the longer text
  CHECK(kept(30, 20, 11) == Lengths{6, 5});
  CHECK(kept(20, 20, 11) == Lengths{5, 6});  // or to the second one if both are equal
  CHECK(kept(20, 20, 1) == Lengths{0, 1});
}

TEST_CASE("only_first and only_second truncate that text, and refuse to leave it empty") {
  CHECK(kept_lengths(20, 3, 10, Truncation::only_first) == Lengths{7, 3});
  CHECK(kept_lengths(20, 3, 21, Truncation::only_second) == Lengths{20, 1});
  CHECK_THROWS_AS(kept_lengths(20, 3, 20, Truncation::only_second), DataError);
  CHECK_THROWS_AS(kept_lengths(2, 30, 20, Truncation::only_first), DataError);
}

TEST_CASE("both texts become empty with any strategy if max_length leaves no tokens for them") {
  for (const Truncation truncation :
       {Truncation::longest_first, Truncation::only_first, Truncation::only_second})
    CHECK(kept_lengths(20, 3, 0, truncation) == Lengths{0, 0});
}

}  // namespace tokenizers_templates_test
