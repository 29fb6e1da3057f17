#include "options/help.h"

#include "hasten/base/text.h"
#include "unit/options/support.h"

namespace options_help_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("help: every supported option appears once with its default, and lines fit the width") {
  for (const int width : {60, 100, 140}) {
    const std::string help = train_help(width);
    for (const char* name :
         {"model", "data", "learning_rate", "eval_steps", "dataloader_prefetch_factor"}) {
      CHECK(contains(help, "\n  --" + std::string(name) + " "));
    }
    CHECK(contains(help, "[5e-05]"));
    CHECK_FALSE(contains(help, "--fsdp "));
    CHECK(contains(help, "Known, not supported yet"));
    CHECK(contains(help, "Known, ignored with a notice"));
    if (width < 100) continue;  // long names need more
    for (const std::string& line : split(help, '\n'))
      CHECK_MESSAGE(static_cast<int>(line.size()) <= width, line);
  }
}

TEST_CASE("help: long explanations are wrapped in their column") {
  CHECK(contains(train_help(100),
                 "\n                                  with several processes and has no effect "
                 "with one. [true]\n"));
  CHECK(contains(
      train_help(60),
      "Set the number of rows in\n                                  a training batch of one\n"));
}

TEST_CASE("help: without a terminal the width is 100") { CHECK(config::terminal_width() >= 60); }

}  // namespace options_help_test
