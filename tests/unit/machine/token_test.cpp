// Tokens that could be guessed, and token files that others can open.
#include "machine/token.h"

#include <sys/stat.h>

#include "hasten/base/files.h"
#include "unit/options/support.h"

namespace machine_token_test {

namespace {

using namespace hasten;
using namespace hasten::test;

const std::string kGood = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

std::string refusal_of(const std::string& token) {
  try {
    check_token(token, "the test");
  } catch (const ConfigError& error) {
    CHECK(error.code() == "config.token");
    return error.what();
  }
  return "";
}

std::string refusal_of_file(mode_t mode) {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "token";
  std::ofstream(file) << kGood << "\n";
  REQUIRE(chmod(file.c_str(), mode) == 0);
  std::string refusal, token;
  try {
    token = read_token_file(file);
  } catch (const ConfigError& error) {
    CHECK(error.code() == "config.token");
    refusal = error.what();
  }
  CHECK((token == kGood) == refusal.empty());
  return refusal;
}

TEST_CASE("token: a token of few different letters is refused") {
  CHECK(refusal_of(kGood).empty());
  CHECK(refusal_of("0123456789012345").empty());
  CHECK(refusal_of(std::string(16, 'x')).find("a single repeated character") != std::string::npos);
  CHECK(refusal_of("abababababababababab").find("at least 6 different") != std::string::npos);
  CHECK(refusal_of("short").find("16 to 1024") != std::string::npos);
}

TEST_CASE("token: the error for a file that others can read or write says what to do") {
  CHECK(refusal_of_file(0600).empty());
  CHECK(refusal_of_file(0400).empty());
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0602}) {
    CAPTURE(mode);
    CHECK(refusal_of_file(mode).find("chmod 600") != std::string::npos);
  }
  CHECK(refusal_of_file(0644).find("mode 644") != std::string::npos);
}

}  // namespace

}  // namespace machine_token_test
