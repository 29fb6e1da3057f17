// File: track/append_only_file.h (internal)
// A file to which a tracker appends. Each append() is one write, so that a reader sees whole
// records unless the disk is full.
//
//   AppendOnlyFile file("logs/metrics.jsonl");
//   file.append(line);
//
// The constructor creates the missing folders and throws IoError "io.mkdir" and "io.open". A later
// failure is logged once, and nothing more is written. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.h"

namespace hasten {

class AppendOnlyFile {
 public:
  explicit AppendOnlyFile(std::filesystem::path path);
  void append(std::string_view bytes);
  // True if the file had no content when it was opened.
  bool was_empty() const { return was_empty_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  bool was_empty_ = true;
};

// Returns the seconds since 1970.
double seconds_since_epoch();

}  // namespace hasten
