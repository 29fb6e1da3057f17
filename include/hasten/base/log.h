// File: hasten/base/log.h
// The levels of log lines, and the function that receives them. The logger itself, which knows
// which process logs, is hasten/process/logger.h.
//
//   const LogSink sink = [](std::string_view line) { std::cerr << line << '\n'; };
//
// Thread rule: constants. A LogSink is called on the thread that logs.
#pragma once

#include <functional>
#include <string_view>

namespace hasten {

// In ascending order. `passive`, the default, leaves the level to the environment
// (ACCELERATE_LOG_LEVEL) or else means `warning`; a Trainer takes it as `info`.
enum class LogLevel { passive, debug, info, warning, error, critical };

// Receives one line without its line end.
using LogSink = std::function<void(std::string_view line)>;

}  // namespace hasten
