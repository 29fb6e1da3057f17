#include "hasten/base/error.h"

#include <doctest/doctest.h>

#include <string>

namespace base_error_test {

using namespace hasten;

TEST_CASE("error: the text has what, got, expected and the hint, and omits empty parts") {
  const DataError full("formats.truncated", {.what = "model.safetensors",
                                             .got = "10 bytes",
                                             .expected = "at least 16",
                                             .hint = "fetch it again"});
  CHECK(std::string(full.what()) ==
        "model.safetensors: got 10 bytes, expected at least 16. Hint: fetch it again");
  CHECK(full.exit_code() == 3);
  const UsageError bare("usage", {.what = "no loader"});
  CHECK(std::string(bare.what()) == "no loader");
  CHECK(bare.code() == "usage");
}

}  // namespace base_error_test
