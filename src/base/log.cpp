#include "hasten/base/log.h"

#include <iostream>
#include <mutex>
#include <utility>

#include "hasten/base/text.h"

namespace hasten {
namespace {

struct ProcessSink {
  std::mutex mutex;
  LogSink sink;
};

// It is never destroyed, because threads may log while the process ends.
ProcessSink& process_sink() {
  static auto& one = *new ProcessSink;
  return one;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(process_sink().mutex);
  process_sink().sink = std::move(sink);
}

void log_line(std::string_view line) {
  std::unique_lock lock(process_sink().mutex);
  const LogSink sink = process_sink().sink;
  lock.unlock();
  if (sink) return sink(line);
  std::cerr << str(line, '\n') << std::flush;
}

}  // namespace hasten
