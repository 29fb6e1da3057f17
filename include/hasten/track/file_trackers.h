// File: hasten/track/file_trackers.h
// Trackers that write files into the folder of a run: TensorBoard's event files, JSON lines, and
// CSV.
//
//   TensorBoardTracker board("logs/sst2");        // tensorboard --logdir logs
//   board.log({{"train/loss", 0.41}}, step);
//   JsonLinesTracker lines("logs/sst2");          // tail -f logs/sst2/metrics.jsonl
//   lines.log({{"train/loss", 0.41}}, step);
//
// One call of log() is one write to the system without a sync, so that a reader sees it at once and
// a step does not wait for the disk. A run that continues in the same folder appends; TensorBoard
// gets a new file in it. After a resume, what an earlier process has logged since the checkpoint no
// longer counts: lines move to `abandoned-metrics.jsonl` or `abandoned-metrics.csv`, and an event
// tells TensorBoard to drop later steps. The constructors create the folder and throw IoError
// "io.*". Thread rule: one thread at a time for each tracker.
#pragma once

#include <memory>

#include "hasten/base/detail/export.h"
#include "hasten/track/tracker.h"

namespace hasten {

class AppendOnlyFile;

// Writes an event file as torch.utils.tensorboard does. The configuration appears in the HParams
// tab. Texts, histograms and images appear in the tabs of their names.
class HASTEN_API TensorBoardTracker : public Tracker {
 public:
  explicit TensorBoardTracker(const std::filesystem::path& folder);
  ~TensorBoardTracker() override;
  std::string name() const override { return "tensorboard"; }
  void store_init_configuration(const TrackedConfiguration& values) override;
  void log(const TrackedScalars& values, std::int64_t step) override;
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override;
  void log_histogram(const std::string& name, std::span<const double> values,
                     std::int64_t step) override;
  // Throws UsageError "track.image" if the bytes do not fit the sizes.
  void log_image(const std::string& name, const TrackedImage& image, std::int64_t step) override;
  TrackerPosition position() const override;
  bool resume(const TrackerPosition& position, std::int64_t step) override;
  void finish() override;

 private:
  std::unique_ptr<AppendOnlyFile> file_;
  bool has_configuration_ = false;
};

// Writes metrics.jsonl: {"step": 10, "time": 1790000000.5, "train/loss": 0.41} for each log(),
// where a value that is not finite is null and the time is in seconds since 1970; {"config": {...}}
// for the configuration; and {"step": 10, "time": ..., "NAME": "TEXT"} for a text.
class HASTEN_API JsonLinesTracker : public Tracker {
 public:
  explicit JsonLinesTracker(const std::filesystem::path& folder);
  ~JsonLinesTracker() override;
  std::string name() const override { return "jsonl"; }
  void store_init_configuration(const TrackedConfiguration& values) override;
  void log(const TrackedScalars& values, std::int64_t step) override;
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override;
  TrackerPosition position() const override;
  bool resume(const TrackerPosition& position, std::int64_t step) override;
  void finish() override;

 private:
  std::unique_ptr<AppendOnlyFile> file_;
};

// Writes metrics.csv with the columns step, time, name and value, one row for each value, because
// the names of a run are not known when the header is written. The configuration becomes rows
// without a step.
class HASTEN_API CsvTracker : public Tracker {
 public:
  explicit CsvTracker(const std::filesystem::path& folder);
  ~CsvTracker() override;
  std::string name() const override { return "csv"; }
  void store_init_configuration(const TrackedConfiguration& values) override;
  void log(const TrackedScalars& values, std::int64_t step) override;
  TrackerPosition position() const override;
  bool resume(const TrackerPosition& position, std::int64_t step) override;
  void finish() override;

 private:
  std::unique_ptr<AppendOnlyFile> file_;
};

}  // namespace hasten
