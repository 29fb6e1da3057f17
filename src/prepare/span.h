// File: prepare/span.h (internal)
// A range of a trace that begins in one thread and may end in another.
#pragma once

#include <functional>
#include <string>

namespace hasten {

// Begins it; what comes back ends it, and is empty where nobody records.
std::function<void()> begin_span(const std::string& name);

}  // namespace hasten
