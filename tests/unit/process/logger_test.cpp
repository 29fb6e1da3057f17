#include "hasten/process/logger.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "unit/code_of.h"

using namespace hasten;

namespace {

struct Lines {
  std::vector<std::string> told;
  LogSink sink() {
    return [this](std::string_view line) { told.emplace_back(line); };
  }
};

const ProcessState kSecond{.process_index = 1, .num_processes = 2, .local_process_index = 1};

struct LevelVariable {
  explicit LevelVariable(const char* value) { setenv("ACCELERATE_LOG_LEVEL", value, 1); }
  ~LevelVariable() { unsetenv("ACCELERATE_LOG_LEVEL"); }
};

}  // namespace

TEST_CASE("logger: lines below the level are not told") {
  Lines lines;
  const Logger logger("train", LogLevel::warning, {}, Group::single(), lines.sink());
  logger.debug("a");
  logger.info("b");
  logger.warning("c");
  logger.error("d");
  logger.critical("e");
  CHECK(lines.told ==
        std::vector<std::string>{"train: warning: c", "train: error: d", "train: critical: e"});
  CHECK_FALSE(logger.is_enabled_for(LogLevel::info));
}

TEST_CASE("logger: other processes speak only where they are asked to, with their rank") {
  Lines lines;
  const Logger logger("train", LogLevel::info, kSecond, Group::single(), lines.sink());
  logger.info("for the main process");
  logger.info("for all", {.main_process_only = false});
  logger.info("in turn", {.main_process_only = false, .in_order = true});
  CHECK(lines.told ==
        std::vector<std::string>{"[RANK 1] train: info: for all", "[RANK 1] train: info: in turn"});
}

TEST_CASE("logger: a warning told once is not told again, another one is") {
  Lines lines;
  Logger logger("train", LogLevel::passive, {}, Group::single(), lines.sink());
  for (int i = 0; i < 3; ++i) logger.warning_once("slow");
  logger.warning_once("full");
  CHECK(lines.told == std::vector<std::string>{"train: warning: slow", "train: warning: full"});
}

TEST_CASE("logger: passive follows the environment, a level given does not") {
  const LevelVariable variable("DEBUG");
  CHECK(Logger("a").level() == LogLevel::debug);
  CHECK(Logger("a", LogLevel::error).level() == LogLevel::error);
}

TEST_CASE("logger: without a wish the level is warning; a word that is none is refused") {
  CHECK(Logger("a").level() == LogLevel::warning);
  for (const char* word : {"loud", "passive", "1"}) {
    const LevelVariable variable(word);
    CHECK(code_of([] { Logger("a"); }) == "process.log-level");
  }
}
