#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "skip.h"

namespace {

bool a_test_was_skipped = false;

// CMakeLists.txt passes this number to ctest as SKIP_RETURN_CODE.
constexpr int kSkipped = 77;

}  // namespace

void skip_test(const char* reason) {
  a_test_was_skipped = true;
  std::printf("skipped: %s\n", reason);
}

int main(int argc, char** argv) {
  const int result = doctest::Context(argc, argv).run();
  return result == 0 && a_test_was_skipped ? kSkipped : result;
}
