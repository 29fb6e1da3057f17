// File: track/append_only_file.h (internal)
// A file to which a tracker appends. Each append() is one write, so that a reader sees whole
// records. What a failed write has left of a record is removed.
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

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  // Moves what follows the position to the end of the file `abandoned-NAME` in the same folder. An
  // earlier call may have moved the records before the position there, because the run had resumed
  // from an earlier checkpoint: then they are copied back. Returns false, and leaves the file as it
  // is, if neither file has the position, and logs this if the file had content when it was opened.
  bool go_back_to(const TrackerPosition& position);
  // True if the file had no content when it was opened.
  bool was_empty() const { return was_empty_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  // The content up to a position: that of this file up to the position `kept`, and then `rest`.
  struct Content {
    TrackerPosition kept;
    std::string rest;
  };
  struct AbandonedPart;

  bool restores(const TrackerPosition& position) const;
  bool has_position(const TrackerPosition& position) const;
  std::optional<Content> content_before(const TrackerPosition& position,
                                        const std::vector<AbandonedPart>& abandoned) const;
  std::vector<AbandonedPart> abandoned_parts() const;
  // Moves what follows a position that the file has to the abandoned file. Returns false if a write
  // fails.
  bool abandon_after(const TrackerPosition& position) const;
  std::filesystem::path abandoned_file() const;
  // The file with a line of JSON for each part of the abandoned file: its place there, and the
  // position that it followed.
  std::filesystem::path abandoned_index() const;

  std::filesystem::path path_;
  Descriptor file_;
  bool was_empty_ = true;
};

// Returns the seconds since 1970.
double seconds_since_epoch();

}  // namespace hasten
