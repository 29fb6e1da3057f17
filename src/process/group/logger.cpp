#include "hasten/process/detail/logger.h"

#include <cstdlib>

#include "base/environment_variable.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/options/detail/names.h"

namespace hasten {
namespace {

LogLevel level_of_environment() {
  const std::string value = environment_variable("ACCELERATE_LOG_LEVEL");
  if (value.empty()) return LogLevel::warning;
  const std::optional<LogLevel> level = from_name<LogLevel>(lower(value));
  if (level && *level != LogLevel::passive) return *level;
  throw ConfigError("process.log-level", {.what = "ACCELERATE_LOG_LEVEL",
                                          .got = value,
                                          .expected = "DEBUG, INFO, WARNING, ERROR or CRITICAL"});
}

}  // namespace

Logger::Logger(std::string name, LogLevel level, ProcessState process, Group group, LogSink sink)
    : name_(std::move(name)),
      level_(level == LogLevel::passive ? level_of_environment() : level),
      process_(process),
      group_(std::move(group)),
      sink_(sink ? std::move(sink) : log_line) {}

void Logger::log(LogLevel level, std::string_view text, LogOptions options) const {
  if (!is_enabled_for(level)) return;
  const std::string rank =
      options.main_process_only ? "" : str("[RANK ", process_.process_index, "] ");
  const std::string line = str(rank, name_, ": ", name_of(level), ": ", text);
  if (options.main_process_only) {
    if (process_.is_main_process()) sink_(line);
    return;
  }
  if (!options.in_order) return sink_(line);
  for (std::int64_t writer = 0; writer < group_.size(); ++writer) {
    if (writer == group_.rank()) sink_(line);
    group_.barrier();
  }
}

void Logger::debug(std::string_view text, LogOptions options) const {
  log(LogLevel::debug, text, options);
}
void Logger::info(std::string_view text, LogOptions options) const {
  log(LogLevel::info, text, options);
}
void Logger::warning(std::string_view text, LogOptions options) const {
  log(LogLevel::warning, text, options);
}
void Logger::error(std::string_view text, LogOptions options) const {
  log(LogLevel::error, text, options);
}
void Logger::critical(std::string_view text, LogOptions options) const {
  log(LogLevel::critical, text, options);
}

void Logger::warning_once(std::string_view text, LogOptions options) {
  if (logged_once_.emplace(text).second) warning(text, options);
}

}  // namespace hasten
