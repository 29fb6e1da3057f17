// File: commands/output_streams.h (internal)
// Selects output streams of processes, in torchrun's form: one digit for all processes, or one
// digit for each local rank, such as "0:3,1:1". 0 means none, 1 output, 2 errors, and 3 both.
// Processes that are not in the map have no streams.
//
//   parse_streams("tee", "0:3,1:1").has(1, 2);      // local rank 1, errors: false
//
// Throws ConfigError "config.bad-value". Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hasten {

class Streams {
 public:
  // Selects the same streams for all processes.
  explicit Streams(int all) : all_(all) {}
  // Selects the streams of each local rank.
  explicit Streams(std::map<std::int64_t, int> by_rank) : by_rank_(std::move(by_rank)) {}

  bool any() const;
  bool has(std::int64_t local_rank, int stream) const;  // stream: 1 output, 2 errors

 private:
  int all_ = 0;
  std::map<std::int64_t, int> by_rank_;
};

// Parses a text; an empty text means none. `option` is for messages.
Streams parse_streams(const std::string& option, const std::string& text);

}  // namespace hasten
