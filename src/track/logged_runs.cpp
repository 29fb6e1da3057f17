#include "track/logged_runs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "base/json_number.h"
#include "base/parse_number.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "track/csv_field.h"
#include "track/event_fields.h"
#include "track/event_record.h"
#include "track/log_names.h"
#include "track/protobuf.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using LoggedJson = nlohmann::json;
using Curves = std::map<std::string, LoggedCurve>;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Returns the number of a tensor with one float. Newer programs write scalars in this way.
std::optional<double> number_of_tensor(std::string_view bytes) {
  namespace fields = event_fields;
  std::string_view floats;
  std::int64_t type = 0;
  for (ProtobufReader tensor(bytes); tensor.next();) {
    if (tensor.field() == fields::kType) type = tensor.integer();
    if (tensor.field() == fields::kFloats || tensor.field() == fields::kTensorContent)
      floats = tensor.bytes();
  }
  float value = 0;
  if (type != fields::kTypeFloat || floats.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, floats.data(), sizeof value);
  return value;
}

void add_value(Curves& curves, std::int64_t step, std::string_view bytes) {
  namespace fields = event_fields;
  std::string tag;
  std::optional<double> number;
  for (ProtobufReader value(bytes); value.next();) {
    if (value.field() == fields::kTag) tag = value.bytes();
    if (value.field() == fields::kSimpleValue) number = value.single();
    if (value.field() == fields::kTensor) number = number_of_tensor(value.bytes());
  }
  if (number) curves[tag][step] = *number;
}

bool is_session_start(std::string_view bytes) {
  for (ProtobufReader session(bytes); session.next();) {
    if (session.field() == event_fields::kStatus) return session.integer() == event_fields::kStart;
  }
  return false;
}

void remove_from_step(Curves& curves, std::int64_t step) {
  for (auto& [tag, curve] : curves) curve.erase(curve.lower_bound(step), curve.end());
  std::erase_if(curves, [](const auto& each) { return each.second.empty(); });
}

void add_event(Curves& curves, std::string_view bytes) {
  namespace fields = event_fields;
  std::int64_t step = 0;
  std::string_view summary, session;
  for (ProtobufReader event(bytes); event.next();) {
    if (event.field() == fields::kStep) step = event.integer();
    if (event.field() == fields::kSummary) summary = event.bytes();
    if (event.field() == fields::kSessionLog) session = event.bytes();
  }
  // A run that was resumed does the steps from here on again.
  if (is_session_start(session)) remove_from_step(curves, step);
  for (ProtobufReader reader(summary); reader.next();) {
    if (reader.field() == fields::kValue) add_value(curves, step, reader.bytes());
  }
}

void add_event_file(Curves& curves, const fs::path& file) {
  const std::string content = read_file(file);
  std::string_view rest = content;
  while (const auto event = next_event_record(rest)) add_event(curves, *event);
}

// Adds the numbers of an object that has a step. Null means a value that is not finite.
void add_object(Curves& curves, const LoggedJson& object,
                std::string (*name_of_value)(const std::string&)) {
  if (!object.is_object() || !object.contains("step")) return;
  const auto step = whole_number_in(object["step"]);
  if (!step) return;
  for (const auto& [name, value] : object.items()) {
    if (name == "step" || name == "time" || !(value.is_number() || value.is_null())) continue;
    curves[name_of_value(name)][*step] = value.is_null() ? kNotANumber : value.get<double>();
  }
}

void add_json_lines(Curves& curves, const fs::path& file) {
  const auto same = [](const std::string& name) { return name; };
  for (const std::string& line : split(read_file(file), '\n'))
    add_object(curves, parse_json_or_discard<LoggedJson>(line), same);
}

void add_csv(Curves& curves, const fs::path& file) {
  const std::string content = read_file(file);
  for (std::string_view rest = content; !rest.empty();) {
    const std::vector<std::string> fields = next_csv_record(rest);
    if (fields.size() != 4) continue;
    const auto step = parse_number<std::int64_t>(fields[0]);
    const auto value = parse_number<double>(fields[3]);
    if (step && value) curves[fields[2]][*step] = *value;
  }
}

void add_trainer_state(Curves& curves, const fs::path& file) {
  const auto state = read_json_or_discard<LoggedJson>(file);
  if (!state.is_object() || !state.contains("log_history") || !state["log_history"].is_array()) {
    throw DataError("track.log-file", {.what = file.string(),
                                       .got = "no JSON object with log_history",
                                       .expected = "a trainer_state.json"});
  }
  for (const LoggedJson& entry : state["log_history"]) add_object(curves, entry, grouped_name);
}

bool is_event_file(const fs::path& file) {
  return file.filename().string().find("tfevents") != std::string::npos;
}

// Reads a file in the format that its name implies.
void add_file(Curves& curves, const fs::path& file) {
  if (is_event_file(file)) return add_event_file(curves, file);
  if (file.extension() == ".jsonl") return add_json_lines(curves, file);
  if (file.extension() == ".csv") return add_csv(curves, file);
  if (file.extension() == ".json") return add_trainer_state(curves, file);
  throw DataError("track.log-file",
                  {.what = file.string(),
                   .got = "a different kind of file",
                   .expected = "an event file of TensorBoard, or a file ending in .jsonl, .csv "
                               "or .json"});
}

// Returns the folder and all folders below it, sorted.
std::set<fs::path> folders_of(const fs::path& folder) {
  std::set<fs::path> all = {folder};
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder, kOptions)) {
    if (entry.is_directory()) all.insert(entry.path());
  }
  return all;
}

// Returns the files of one kind that make a folder a run. Empty if the folder is not a run.
std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> events;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_event_file(entry.path())) events.push_back(entry.path());
  }
  // The names contain the time at which each file was begun, so the newest value of a step counts.
  // The trackers of a process that began in the same second are numbered.
  const auto order_of = [](const fs::path& file) {
    constexpr std::size_t kPrefixAndSeconds = std::string_view("events.out.tfevents.").size() + 10;
    const std::string name = file.filename().string();
    return std::tuple(name.substr(0, kPrefixAndSeconds), name.size(), name);
  };
  std::sort(events.begin(), events.end(),
            [&](const fs::path& a, const fs::path& b) { return order_of(a) < order_of(b); });
  if (!events.empty()) return events;
  for (const char* const name : {"metrics.jsonl", "metrics.csv"}) {
    if (fs::exists(folder / name)) return {folder / name};
  }
  return {};
}

// Returns the state in the output folder of a Trainer, or in its newest checkpoint. Empty if there
// is none.
fs::path trainer_state_in(const fs::path& folder) {
  constexpr const char* kName = "trainer_state.json";
  constexpr std::string_view kCheckpoint = "checkpoint-";
  if (fs::exists(folder / kName)) return folder / kName;
  std::int64_t newest = -1;
  fs::path found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!starts_with(name, kCheckpoint) || !fs::exists(entry.path() / kName)) continue;
    const auto step = parse_number<std::int64_t>(name.substr(kCheckpoint.size()));
    if (!step || *step <= newest) continue;
    newest = *step;
    found = entry.path() / kName;
  }
  return found;
}

LoggedRun read_run(const fs::path& name, const std::vector<fs::path>& files) {
  LoggedRun run{.name = name.lexically_normal().string(), .curves = {}};
  for (const fs::path& file : files) add_file(run.curves, file);
  return run;
}

std::vector<LoggedRun> runs_in(const fs::path& path) {
  if (!fs::exists(path)) {
    throw IoError("io.not-found", {.what = path.string() + ": no such folder or file"});
  }
  if (!fs::is_directory(path)) return {read_run(path, {path})};
  std::vector<LoggedRun> runs;
  for (const fs::path& folder : folders_of(path)) {
    const auto files = files_of_run(folder);
    if (!files.empty()) runs.push_back(read_run(folder, files));
  }
  if (!runs.empty()) return runs;
  const fs::path state = trainer_state_in(path);
  if (!state.empty()) runs.push_back(read_run(path, {state}));
  return runs;
}

}  // namespace

std::vector<LoggedRun> read_logged_runs(const std::vector<fs::path>& paths) {
  std::vector<LoggedRun> all;
  for (const fs::path& path : paths) {
    const std::size_t before = all.size();
    for (LoggedRun& run : runs_in(path)) {
      if (!run.curves.empty()) all.push_back(std::move(run));
    }
    if (all.size() > before) continue;
    throw DataError("track.no-values",
                    {.what = path.string(),
                     .got = "no logged values",
                     .expected = "event files of TensorBoard, metrics.jsonl, metrics.csv or "
                                 "trainer_state.json",
                     .hint = "name the folder of a run, such as its output_dir or logging_dir"});
  }
  return all;
}

}  // namespace hasten
