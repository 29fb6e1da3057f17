// File: commands/source_and_target.h (internal)
// The words of a command that reads one path and writes another: FROM TO [--NAME VALUE ...].
//
//   const SourceAndTarget paths(words);
//   if (!paths.has_both()) config::throw_missing(...);
//
// Needs no torch. Throws only if memory runs out. Thread rule: a value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hasten {

struct SourceAndTarget {
  explicit SourceAndTarget(const std::vector<std::string>& words);
  bool has_both() const { return count == 2; }

  std::size_t count = 0;  // the words before the options
  std::string from, to;
  std::vector<std::string> options;
};

}  // namespace hasten
