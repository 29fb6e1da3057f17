#include <sstream>

#include "options/help.h"
#include "unit/options/support.h"

namespace options_reference_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("reference: the page in docs equals the generated description") {
  std::ifstream file(HASTEN_SOURCE "/docs/reference/training_arguments.md");
  std::stringstream page;
  page << file.rdbuf();
  CHECK_MESSAGE(page.str() == train_reference(),
                "stale: hasten train --help markdown > docs/reference/training_arguments.md");
}

TEST_CASE("reference: it has every known name") {
  TrainingArguments arguments;
  TrainOptions options;
  config::OptionTable table;
  describe(table, options);
  describe(table, arguments);
  const std::string page = train_reference();
  for (const std::string& name : table.names()) {
    CAPTURE(name);
    CHECK(contains(page, "`" + name + "`"));
  }
}

}  // namespace options_reference_test
