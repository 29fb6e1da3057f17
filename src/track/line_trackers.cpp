// The trackers of text files: JSON lines and CSV.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_line.h"
#include "hasten/base/text.h"
#include "hasten/track/file_trackers.h"
#include "track/append_only_file.h"
#include "track/csv_field.h"

namespace hasten {
namespace {

using LineJson = nlohmann::ordered_json;

LineJson timestamped_record(std::int64_t step) {
  return {{"step", step}, {"time", seconds_since_epoch()}};
}

std::string text_of(const TrackedValue& value) {
  return std::visit([](const auto& each) { return str(each); }, value);
}

}  // namespace

JsonLinesTracker::JsonLinesTracker(const std::filesystem::path& folder)
    : file_(std::make_unique<AppendOnlyFile>(folder / "metrics.jsonl")) {}

JsonLinesTracker::~JsonLinesTracker() = default;

void JsonLinesTracker::store_init_configuration(const TrackedConfiguration& values) {
  if (!file_) return;
  LineJson all = LineJson::object();
  for (const auto& [name, value] : values)
    std::visit([&, &key = name](const auto& each) { all[key] = each; }, value);
  file_->append(json_line(LineJson{{"config", std::move(all)}}) + "\n");
}

void JsonLinesTracker::log(const TrackedScalars& values, std::int64_t step) {
  if (!file_) return;
  LineJson line = timestamped_record(step);
  for (const auto& [name, value] : values)
    line[name] = std::isfinite(value) ? LineJson(value) : LineJson(nullptr);
  file_->append(json_line(line) + "\n");
}

void JsonLinesTracker::log_text(const std::string& name, const std::string& text,
                                std::int64_t step) {
  if (!file_) return;
  LineJson line = timestamped_record(step);
  line[name] = text;
  file_->append(json_line(line) + "\n");
}

TrackerPosition JsonLinesTracker::position() const {
  return file_ ? file_->position() : TrackerPosition{};
}

bool JsonLinesTracker::resume(const TrackerPosition& position, std::int64_t) {
  return file_ && file_->go_back_to(position);
}

void JsonLinesTracker::finish() { file_.reset(); }

CsvTracker::CsvTracker(const std::filesystem::path& folder)
    : file_(std::make_unique<AppendOnlyFile>(folder / "metrics.csv")) {
  if (file_->was_empty()) file_->append("step,time,name,value\n");
}

CsvTracker::~CsvTracker() = default;

void CsvTracker::store_init_configuration(const TrackedConfiguration& values) {
  if (!file_) return;
  std::string rows;
  const std::string time = fixed(seconds_since_epoch(), 3);
  for (const auto& [name, value] : values)
    rows += str(",", time, ",", csv_field(name), ",", csv_field(text_of(value)), "\n");
  file_->append(rows);
}

void CsvTracker::log(const TrackedScalars& values, std::int64_t step) {
  if (!file_) return;
  std::string rows;
  const std::string time = fixed(seconds_since_epoch(), 3);
  for (const auto& [name, value] : values)
    rows += str(step, ",", time, ",", csv_field(name), ",", value, "\n");
  file_->append(rows);
}

TrackerPosition CsvTracker::position() const {
  return file_ ? file_->position() : TrackerPosition{};
}

bool CsvTracker::resume(const TrackerPosition& position, std::int64_t) {
  return file_ && file_->go_back_to(position);
}

void CsvTracker::finish() { file_.reset(); }

}  // namespace hasten
