// File: prepare/span.h (internal)
// A range of a trace that begins in one thread and may end in another.
#pragma once

#include <functional>
#include <string>

namespace hasten {

// Begins a range. The returned function ends it, and is empty if nothing is recording.
std::function<void()> begin_span(const std::string& name);

}  // namespace hasten
