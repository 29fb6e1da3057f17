// File: hasten/process/detail/logger.h
// Log lines with a level. By default only the main process writes them, as with Accelerate's
// get_logger.
//
//   hasten::Logger logger = accelerator.get_logger("train", hasten::LogLevel::info);
//   logger.info("starts");                                      // train: info: starts
//   logger.warning("slow disk", {.main_process_only = false});  // every rank, after [RANK 1]
//   logger.warning_once("shown a single time");
//
// A value: each logger has its own level. Lines go to the log sink of the process
// (hasten/base/log.h) unless a sink is given. The constructor sets the level. `passive` takes the
// level from the environment variable ACCELERATE_LOG_LEVEL (DEBUG, INFO, WARNING, ERROR or
// CRITICAL), and is warning without that variable. The constructor throws ConfigError
// "process.log-level" for another value. Thread rule: one thread at a time, unless the sink allows
// more; with in_order every rank must make the call.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "hasten/base/detail/export.h"
#include "hasten/base/log.h"
#include "hasten/process/group.h"

namespace hasten {

struct LogOptions {
  bool main_process_only = true;
  // Ranks write one after the other; used with main_process_only = false. A collective.
  bool in_order = false;
};

class HASTEN_API Logger {
 public:
  Logger(std::string name, LogLevel level = LogLevel::passive, ProcessState process = {},
         Group group = Group::single(), LogSink sink = {});

  void debug(std::string_view text, LogOptions options = {}) const;
  void info(std::string_view text, LogOptions options = {}) const;
  void warning(std::string_view text, LogOptions options = {}) const;
  void error(std::string_view text, LogOptions options = {}) const;
  void critical(std::string_view text, LogOptions options = {}) const;
  void log(LogLevel level, std::string_view text, LogOptions options = {}) const;
  // Logs a text only the first time that this logger gets it.
  void warning_once(std::string_view text, LogOptions options = {});

  bool is_enabled_for(LogLevel level) const { return level >= level_; }
  LogLevel level() const { return level_; }

 private:
  std::string name_;
  LogLevel level_;
  ProcessState process_;
  Group group_;
  LogSink sink_;
  std::set<std::string, std::less<>> logged_once_;  // the texts of warning_once
};

}  // namespace hasten
