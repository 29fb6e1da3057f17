// Writes the report as a trace in Chrome's JSON format, which Perfetto also reads. Source: "Trace
// Event Format" of the Chromium project. X is a call with a duration, C a counter, M metadata;
// times are in microseconds.
#include <nlohmann/json.hpp>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;
// Each phase has a separate lane, because the backward pass may run on another thread.
int lane(Phase phase) { return 1 + static_cast<int>(phase); }

Json named(const char* what, int thread, std::string name) {
  return {{"ph", "M"},
          {"name", what},
          {"pid", kProcess},
          {"tid", thread},
          {"args", {{"name", std::move(name)}}}};
}

Json call(const Span& span, const Operation& operation) {
  return {{"ph", "X"},
          {"name", operation.name},
          {"cat", name_of(operation.group)},
          {"pid", kProcess},
          {"tid", lane(operation.phase)},
          {"ts", 1e6 * span.began},
          {"dur", 1e6 * span.seconds},
          {"args", {{"module", operation.module}}}};
}

Json memory_at(const TimelinePoint& point) {
  Json bytes = Json::object();
  for (std::size_t i = 0; i < kComponents; ++i)
    bytes[std::string(name_of(static_cast<Component>(i)))] = point.bytes[i];
  return {{"ph", "C"},
          {"name", "memory"},
          {"pid", kProcess},
          {"ts", 1e6 * point.seconds},
          {"args", std::move(bytes)}};
}

}  // namespace

std::string to_trace(const Report& report) {
  Json events = Json::array();
  events.push_back(
      named("process_name", 0, (report.dry ? "predicted on " : "measured on ") + report.device));
  for (std::size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    events.push_back(named("thread_name", lane(phase), std::string(name_of(phase))));
  }
  for (const Span& span : report.spans)
    events.push_back(call(span, report.operations[static_cast<std::size_t>(span.operation)]));
  for (const TimelinePoint& point : report.memory.timeline) events.push_back(memory_at(point));
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace hasten::anatomy
