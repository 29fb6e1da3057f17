#include "hasten/process/detail/logger.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "unit/code_of.h"

namespace process_logger_test {

using namespace hasten;

namespace {

struct Lines {
  std::vector<std::string> logged;
  LogSink sink() {
    return [this](std::string_view line) { logged.emplace_back(line); };
  }
};

const ProcessState kSecond{.process_index = 1, .num_processes = 2, .local_process_index = 1};

struct LevelVariable {
  explicit LevelVariable(const char* value) { setenv("ACCELERATE_LOG_LEVEL", value, 1); }
  ~LevelVariable() { unsetenv("ACCELERATE_LOG_LEVEL"); }
};

}  // namespace

TEST_CASE("logger: lines below the level are not logged") {
  Lines lines;
  const Logger logger("train", LogLevel::warning, {}, Group::single(), lines.sink());
  logger.debug("a");
  logger.info("b");
  logger.warning("c");
  logger.error("d");
  logger.critical("e");
  CHECK(lines.logged ==
        std::vector<std::string>{"train: warning: c", "train: error: d", "train: critical: e"});
  CHECK_FALSE(logger.is_enabled_for(LogLevel::info));
}

TEST_CASE("logger: other processes log only on request, with their rank") {
  Lines lines;
  const Logger logger("train", LogLevel::info, kSecond, Group::single(), lines.sink());
  logger.info("for the main process");
  logger.info("for all", {.main_process_only = false});
  logger.info("in turn", {.main_process_only = false, .in_order = true});
  CHECK(lines.logged ==
        std::vector<std::string>{"[RANK 1] train: info: for all", "[RANK 1] train: info: in turn"});
}

TEST_CASE("logger: a warning is logged once, and another warning still is") {
  Lines lines;
  Logger logger("train", LogLevel::passive, {}, Group::single(), lines.sink());
  for (int i = 0; i < 3; ++i) logger.warning_once("slow");
  logger.warning_once("full");
  CHECK(lines.logged == std::vector<std::string>{"train: warning: slow", "train: warning: full"});
}

TEST_CASE("logger: passive follows the environment, an explicit level does not") {
  const LevelVariable variable("DEBUG");
  CHECK(Logger("a").level() == LogLevel::debug);
  CHECK(Logger("a", LogLevel::error).level() == LogLevel::error);
}

TEST_CASE("logger: the default level is warning, and an unknown word is refused") {
  CHECK(Logger("a").level() == LogLevel::warning);
  for (const char* word : {"loud", "passive", "1"}) {
    const LevelVariable variable(word);
    CHECK(code_of([] { Logger("a"); }) == "process.log-level");
  }
}

}  // namespace process_logger_test
