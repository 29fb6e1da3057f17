// File: launch/cores.h (internal)
// The cores that the launcher may use, and their division. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace hasten {

std::vector<int> cores_here();

// In shares that lie side by side; with more shares than cores several have the same one.
std::vector<std::vector<int>> shares_of_cores(std::size_t shares);

}  // namespace hasten
