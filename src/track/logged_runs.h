// File: track/logged_runs.h (internal)
// Reads what runs have logged, from the files that trackers and the Trainer write.
//
//   for (const LoggedRun& run : read_logged_runs({"out", "logs/metrics.jsonl"}))
//     plot(run.name, run.curves.at("train/loss"));
//
// A folder stands for every folder in it, and itself, that has event files, metrics.jsonl or
// metrics.csv, of which the first kind is read. Without any it stands for its trainer_state.json,
// or for that of its newest checkpoint. Records that are damaged or not complete, as at the end of
// a run that was killed, are left out. Throws IoError "io.not-found" and "io.*", DataError
// "track.no-values" and "track.log-file". Thread rule: only reads files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

// The values by step. Of several values of a step, as after a run has resumed, the last one counts.
using LoggedCurve = std::map<std::int64_t, double>;

struct LoggedRun {
  std::string name;  // The path of its folder or file.
  std::map<std::string, LoggedCurve> curves;
};

HASTEN_INTERNAL_API std::vector<LoggedRun> read_logged_runs(
    const std::vector<std::filesystem::path>& paths);

}  // namespace hasten
