// File: track/logged_runs.h (internal)
// Reads what runs have logged, from the files that trackers and the Trainer write.
//
//   for (const LoggedRun& run : read_logged_runs({"out", "logs/metrics.jsonl"}))
//     plot(run.name, run.curves.at("train/loss"));
//
// Reads all runs in a folder. The folder itself and each folder in it is a run if it has event
// files, metrics.jsonl or metrics.csv; the first of these kinds is read. If there is no such run,
// the folder's trainer_state.json is read, or the one in its newest checkpoint. Damaged and
// incomplete records, as at the end of a run that was killed, are left out. Throws IoError
// "io.not-found" and "io.*", DataError "track.no-values" and "track.log-file". Thread rule: only
// reads files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

// The values by step. If a step has several values, as after a run has resumed, the last one
// counts.
using LoggedCurve = std::map<std::int64_t, double>;

struct LoggedRun {
  std::string name;  // The path of its folder or file.
  std::map<std::string, LoggedCurve> curves;
};

HASTEN_INTERNAL_API std::vector<LoggedRun> read_logged_runs(
    const std::vector<std::filesystem::path>& paths);

}  // namespace hasten
