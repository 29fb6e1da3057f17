#include "options/size.h"

#include "unit/options/support.h"

namespace options_size_test {

using namespace hasten;
using namespace hasten::test;

std::int64_t bytes_of(const std::string& text) { return config::parse_size("--size", text); }

TEST_CASE("size: units with a B are powers of 1000, the others are powers of 1024") {
  CHECK(bytes_of("4096") == 4096);
  CHECK(bytes_of("4096B") == 4096);
  CHECK(bytes_of("5kB") == 5000);
  CHECK(bytes_of("200MB") == 200'000'000);
  CHECK(bytes_of("5GB") == 5'000'000'000);
  CHECK(bytes_of("2TB") == 2'000'000'000'000);
  CHECK(bytes_of("5KiB") == 5 * 1024);
  CHECK(bytes_of("200MiB") == 200 * 1024 * 1024);
  CHECK(bytes_of("5GiB") == std::int64_t{5} << 30);
  CHECK(bytes_of("1TiB") == std::int64_t{1} << 40);
  CHECK(bytes_of("3K") == 3 * 1024);
  CHECK(bytes_of("3M") == 3 * 1024 * 1024);
  CHECK(bytes_of("16G") == std::int64_t{16} << 30);
  CHECK(bytes_of("2T") == std::int64_t{2} << 40);
}

TEST_CASE("size: fractions, spaces and any letter case are accepted") {
  CHECK(bytes_of("1.5GB") == 1'500'000'000);
  CHECK(bytes_of("0.5k") == 512);
  CHECK(bytes_of("2e9") == 2'000'000'000);
  CHECK(bytes_of("1.7") == 1);
  CHECK(bytes_of("16 gib") == std::int64_t{16} << 30);
  CHECK(bytes_of(" 16GIB ") == std::int64_t{16} << 30);
  // A double could not hold this number.
  CHECK(bytes_of("9007199254740993") == 9007199254740993);
  CHECK(bytes_of("9223372036854775807") == 9223372036854775807);
}

TEST_CASE("size: a text that is no size is refused") {
  for (const char* wrong : {"",
                            " ",
                            "GiB",
                            "0",
                            "0GB",
                            "0.1",
                            "-1GiB",
                            "-0.5GB",
                            "16 potatoes",
                            "5XB",
                            "5GBs",
                            "5 G B",
                            "0x10",
                            "0x10GB",
                            "0x1p4",
                            "0x1fGB",
                            "nan",
                            "nanGB",
                            "inf",
                            "infinity",
                            "1e30",
                            "1e400",
                            "9223372036854775808",
                            "9000000TiB",
                            "8388608TiB",
                            "1,5GB",
                            "1.5.5GB",
                            "1 2GB"}) {
    CAPTURE(wrong);
    CHECK(error_of([&] { bytes_of(wrong); }).code == "config.bad-value");
  }
  CHECK(error_of([] { bytes_of("0x10"); }).text ==
        "--size: got '0x10', expected a number of bytes above 0, such as 16GiB, 5GB or 1.5GB");
}

}  // namespace options_size_test
