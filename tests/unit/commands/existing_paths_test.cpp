#include "commands/existing_paths.h"

#include <doctest/doctest.h>

#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace commands_existing_paths_test {

using namespace hasten;

TEST_CASE("existing paths: a missing model or path is reported with its name") {
  const TemporaryDirectory folder;
  const std::string missing = folder.path() / "missing";
  check_path_exists(folder.path());
  CHECK(code_of([&] { check_path_exists(missing); }) == "io.not-found");

  check_model_exists(folder.path());
  check_model_exists("bert-base");
  CHECK(code_of([&] { check_model_exists(missing); }) == "io.not-found");
  try {
    check_model_exists("bert-bsae");
    FAIL("not refused");
  } catch (const IoError& error) {
    CHECK(error.text().what == "--model bert-bsae: no such folder or file");
    CHECK(error.text().hint == "did you mean the built-in bert-base?");
  }
}

}  // namespace commands_existing_paths_test
