#include <unistd.h>

#include <atomic>
#include <limits>

#include "base/process_state.h"
#include "hasten/base/text.h"
#include "hasten/track/file_trackers.h"
#include "track/append_only_file.h"
#include "track/event_fields.h"
#include "track/event_record.h"
#include "track/histogram.h"
#include "track/png.h"
#include "track/protobuf.h"

namespace hasten {
namespace {

namespace fields = event_fields;

// Two trackers of a process that begin in the same second get different names.
std::string event_file_name() {
  static std::atomic<int> number = 0;
  std::string seconds = std::to_string(static_cast<std::int64_t>(seconds_since_epoch()));
  seconds.insert(0, seconds.size() < 10 ? 10 - seconds.size() : 0, '0');
  return str("events.out.tfevents.", seconds, ".", host_name(), ".", ::getpid(), ".", number++);
}

std::string record_of_value(const ProtobufWriter& value, std::int64_t step) {
  ProtobufWriter summary, event;
  summary.message(fields::kValue, value);
  event.number(fields::kWallTime, seconds_since_epoch());
  if (step != 0) event.integer(fields::kStep, step);
  event.message(fields::kSummary, summary);
  return event_record(event.text());
}

std::string record_of_version() {
  ProtobufWriter event;
  event.number(fields::kWallTime, seconds_since_epoch());
  event.bytes(fields::kFileVersion, "brain.Event:2");
  return event_record(event.text());
}

// Makes TensorBoard drop what earlier files of the folder have from this step on.
std::string record_of_restart(std::int64_t step) {
  ProtobufWriter session, event;
  session.integer(fields::kStatus, fields::kStart);
  event.number(fields::kWallTime, seconds_since_epoch());
  event.integer(fields::kStep, step);
  event.message(fields::kSessionLog, session);
  return event_record(event.text());
}

ProtobufWriter plugin_metadata(std::string_view plugin, std::string_view content) {
  ProtobufWriter data, metadata;
  data.bytes(fields::kPluginName, plugin);
  if (!content.empty()) data.bytes(fields::kPluginContent, content);
  metadata.message(fields::kPluginData, data);
  return metadata;
}

// Messages of the HParams plugin. Each holds one of three kinds of data, in a summary with the tag
// "_hparams_/" and the kind's name.
namespace hparams {

constexpr int kExperiment = 2, kSessionStart = 3, kSessionEnd = 4;  // HParamsPluginData
constexpr int kInfo = 4, kInfoName = 1, kInfoType = 4;              // Experiment, HParamInfo
constexpr int kTypeText = 1, kTypeFlag = 2, kTypeNumber = 3;        // DataType
constexpr int kStartValues = 1, kStartTime = 5;                     // SessionStartInfo
constexpr int kMapKey = 1, kMapValue = 2;
constexpr int kNumber = 2, kText = 3, kFlag = 4;        // google.protobuf.Value
constexpr int kStatus = 1, kEndTime = 2, kSuccess = 1;  // SessionEndInfo

struct TypedValue {
  int type = 0;
  ProtobufWriter value;
};

TypedValue typed(const TrackedValue& value) {
  TypedValue out;
  if (const auto* flag = std::get_if<bool>(&value)) {
    out.type = kTypeFlag;
    out.value.integer(kFlag, *flag ? 1 : 0);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.type = kTypeText;
    out.value.bytes(kText, *text);
  } else {
    const auto* whole = std::get_if<std::int64_t>(&value);
    out.type = kTypeNumber;
    out.value.number(kNumber, whole ? static_cast<double>(*whole) : std::get<double>(value));
  }
  return out;
}

std::string record(const char* tag, int kind, const ProtobufWriter& content) {
  ProtobufWriter data, value;
  data.message(kind, content);
  value.bytes(fields::kTag, str("_hparams_/", tag));
  value.message(fields::kMetadata, plugin_metadata("hparams", data.text()));
  return record_of_value(value, 0);
}

std::string experiment_and_start(const TrackedConfiguration& values) {
  ProtobufWriter experiment, start;
  for (const auto& [name, value] : values) {
    const TypedValue each = typed(value);
    ProtobufWriter info, entry;
    info.bytes(kInfoName, name);
    info.integer(kInfoType, each.type);
    experiment.message(kInfo, info);
    entry.bytes(kMapKey, name);
    entry.message(kMapValue, each.value);
    start.message(kStartValues, entry);
  }
  start.number(kStartTime, seconds_since_epoch());
  return record("experiment", kExperiment, experiment) +
         record("session_start_info", kSessionStart, start);
}

std::string session_end_record() {
  ProtobufWriter end;
  end.integer(kStatus, kSuccess);
  end.number(kEndTime, seconds_since_epoch());
  return record("session_end_info", kSessionEnd, end);
}

}  // namespace hparams
}  // namespace

TensorBoardTracker::TensorBoardTracker(const std::filesystem::path& folder)
    : file_(std::make_unique<AppendOnlyFile>(folder / event_file_name())) {
  file_->append(record_of_version());
}

TensorBoardTracker::~TensorBoardTracker() { TensorBoardTracker::finish(); }

void TensorBoardTracker::store_init_configuration(const TrackedConfiguration& values) {
  if (!file_) return;
  has_configuration_ = true;
  file_->append(hparams::experiment_and_start(values));
}

void TensorBoardTracker::log(const TrackedScalars& values, std::int64_t step) {
  if (!file_) return;
  std::string records;
  for (const auto& [name, number] : values) {
    ProtobufWriter value;
    value.bytes(fields::kTag, name);
    value.single(fields::kSimpleValue, static_cast<float>(number));
    records += record_of_value(value, step);
  }
  file_->append(records);
}

void TensorBoardTracker::log_text(const std::string& name, const std::string& text,
                                  std::int64_t step) {
  if (!file_) return;
  ProtobufWriter dimension, shape, tensor, value;
  dimension.integer(fields::kDimensionSize, 1);
  shape.message(fields::kDimension, dimension);
  tensor.integer(fields::kType, fields::kTypeText);
  tensor.message(fields::kShape, shape);
  tensor.bytes(fields::kTexts, text);
  value.bytes(fields::kTag, name + "/text_summary");
  value.message(fields::kMetadata, plugin_metadata("text", ""));
  value.message(fields::kTensor, tensor);
  file_->append(record_of_value(value, step));
}

void TensorBoardTracker::log_histogram(const std::string& name, std::span<const double> values,
                                       std::int64_t step) {
  if (!file_) return;
  const Histogram from = histogram(values);
  ProtobufWriter to, value;
  to.number(1, from.min);
  to.number(2, from.max);
  to.number(3, static_cast<double>(from.count));
  to.number(4, from.sum);
  to.number(5, from.sum_of_squares);
  to.numbers(6, from.limits);
  to.numbers(7, from.counts);
  value.bytes(fields::kTag, name);
  value.message(fields::kHistogram, to);
  file_->append(record_of_value(value, step));
}

void TensorBoardTracker::log_image(const std::string& name, const TrackedImage& image,
                                   std::int64_t step) {
  const std::string png = png_of(image);
  if (!file_) return;
  ProtobufWriter to, value;
  to.integer(1, image.height);
  to.integer(2, image.width);
  to.integer(3, image.channels);
  to.bytes(4, png);
  value.bytes(fields::kTag, name);
  value.message(fields::kImage, to);
  file_->append(record_of_value(value, step));
}

TrackerPosition TensorBoardTracker::position() const {
  return file_ ? file_->position() : TrackerPosition{};
}

// TensorBoard may be reading the file of the earlier process, so that file stays as it is.
bool TensorBoardTracker::resume(const TrackerPosition&, std::int64_t step) {
  constexpr std::int64_t kLastStep = std::numeric_limits<std::int64_t>::max();
  if (file_ && step < kLastStep) file_->append(record_of_restart(step + 1));
  return false;
}

void TensorBoardTracker::finish() {
  if (file_ && has_configuration_) file_->append(hparams::session_end_record());
  file_.reset();
}

}  // namespace hasten
