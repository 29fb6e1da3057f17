// File: hasten/base/log.h
// The levels of log lines, and the function that receives them. The logger itself, which knows
// which process logs, is hasten/process/detail/logger.h.
//
//   set_log_sink([](std::string_view line) { std::clog << line << '\n'; });
//   log_line("hasten: 2 processes started by hasten launch meet at 10.0.0.1:29500");
//
// hasten prints nothing by itself except through the log sink of the process, which is standard
// error until the program sets another one. Functions whose name or option says that they print,
// progress bars, and the report of a hanging job (hasten/process/group.h) do not use it. Thread
// rule: any thread. A LogSink is called on the thread that logs.
#pragma once

#include <functional>
#include <string_view>

#include "hasten/base/detail/export.h"

namespace hasten {

// In ascending order. `passive`, the default, takes the level from the environment
// (ACCELERATE_LOG_LEVEL), or means `warning` if that is not set. A Trainer treats it as `info`.
enum class LogLevel { passive, debug, info, warning, error, critical };

// Receives one line without its line end.
using LogSink = std::function<void(std::string_view line)>;

// Replaces the log sink of the process. An empty one restores standard error.
HASTEN_API void set_log_sink(LogSink sink);

// Passes a line without its line end to the log sink of the process.
HASTEN_API void log_line(std::string_view line);

}  // namespace hasten
