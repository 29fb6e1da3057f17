// File: track/append_only_file.h (internal)
// A file to which a tracker appends. Each append() is one write, so that a reader sees whole
// records unless the disk is full.
//
//   AppendOnlyFile file("logs/metrics.jsonl");
//   file.append(line);
//   const TrackerPosition saved = file.position();     // for a checkpoint
//   AppendOnlyFile again("logs/metrics.jsonl");        // in a run that resumes from it
//   again.go_back_to(saved);
//
// The constructor creates the missing folders and throws IoError "io.mkdir" and "io.open". A later
// failure is logged once, and nothing more is written. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.h"
#include "hasten/track/tracker.h"

namespace hasten {

class AppendOnlyFile {
 public:
  explicit AppendOnlyFile(std::filesystem::path path);
  void append(std::string_view bytes);
  // Returns the number of bytes in the file, and the CRC-32C of the last ones, by which
  // go_back_to() recognizes the file. Empty if the file cannot be read.
  TrackerPosition position() const;
  // Moves what follows the position to the end of the file `abandoned-NAME` in the same folder.
  // Returns false, and leaves the file as it is, unless the file has the position; then it logs
  // this if the file had content when it was opened.
  bool go_back_to(const TrackerPosition& position);
  // True if the file had no content when it was opened.
  bool was_empty() const { return was_empty_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool moves_rest_after(const TrackerPosition& position) const;

  std::filesystem::path path_;
  Descriptor file_;
  bool was_empty_ = true;
};

// Returns the seconds since 1970.
double seconds_since_epoch();

}  // namespace hasten
