#include "hasten/base/log.h"

#include <doctest/doctest.h>

#include <iostream>
#include <sstream>
#include <string>

namespace base_log_test {

using namespace hasten;

TEST_CASE("log: lines go to standard error unless the program sets another sink") {
  std::ostringstream standard_error;
  std::streambuf* const before = std::cerr.rdbuf(standard_error.rdbuf());
  std::string seen;
  set_log_sink([&](std::string_view line) { seen += line; });
  log_line("first");
  set_log_sink({});
  log_line("second");
  std::cerr.rdbuf(before);
  CHECK(seen == "first");
  CHECK(standard_error.str() == "second\n");
}

}  // namespace base_log_test
