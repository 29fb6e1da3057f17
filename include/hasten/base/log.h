// File: hasten/base/log.h
// How much to tell, and where lines go. The logger itself knows which process speaks:
// hasten/process/logger.h.
#pragma once

#include <functional>
#include <string_view>

namespace hasten {

// In ascending order; passive is the default, warning.
enum class LogLevel { passive, debug, info, warning, error, critical };

// Takes one line without its end.
using LogSink = std::function<void(std::string_view line)>;

}  // namespace hasten
