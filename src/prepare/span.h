// File: prepare/span.h (internal)
// A range of a profiler's trace that begins in one thread and may end in another.
#pragma once

#include <functional>
#include <string>

namespace hasten {

// Begins a range. The returned function ends it and is empty if no profiler records.
std::function<void()> begin_span(const std::string& name);

}  // namespace hasten
