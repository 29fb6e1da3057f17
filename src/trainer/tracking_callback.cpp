#include "hasten/trainer/tracking_callback.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/process_state.h"
#include "base/strict_json.h"
#include "hasten/base/text.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/detail/environment.h"
#include "options/variable_of.h"
#include "track/log_names.h"
#include "trainer/restarted_job.h"

namespace hasten {
namespace {

TrackedScalars with_groups(const Metrics& logs) {
  TrackedScalars out;
  for (const auto& [name, value] : logs) out[grouped_name(name)] = value;
  return out;
}

// Adds the values of a JSON object that are set. Lists and objects become their JSON text.
void add_values(TrackedConfiguration& out, const std::string& json) {
  const auto values = parse_json_or_discard(json);
  if (!values.is_object()) return;
  for (const auto& [name, value] : values.items()) {
    if (value.is_null()) continue;
    if (value.is_boolean()) {
      out[name] = value.get<bool>();
    } else if (value.is_number_integer()) {
      out[name] = value.get<std::int64_t>();
    } else if (value.is_number()) {
      out[name] = value.get<double>();
    } else {
      out[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
}

// Returns the part of an attribute's key that belongs to a tracker. The name of a tracker may have
// dots, but the first dot of the key ends this part.
std::string key_prefix(const Tracker& tracker) {
  std::string prefix;
  for (const char c : tracker.name()) {
    if (c == '%') {
      prefix += "%25";
    } else if (c == '.') {
      prefix += "%2E";
    } else {
      prefix += c;
    }
  }
  return prefix + '.';
}

// The Hugging Face Trainer's name of a run: "Nov23_14-05-59_node1".
std::string time_and_host() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64] = "";
  (void)std::strftime(text, sizeof text, "%b%d_%H-%M-%S_", &local);
  return text + host_name();
}

}  // namespace

std::filesystem::path folder_of_trackers(const TrainingArguments& args) {
  const config::Environment environment = config::whole_environment();
  const std::filesystem::path given =
      !args.logging_dir.empty() ? args.logging_dir
                                : config::variable_of(environment, "TENSORBOARD_LOGGING_DIR");
  if (!given.empty()) return args.run_name.empty() ? given : given / args.run_name;
  return std::filesystem::path(args.output_dir) / "runs" /
         (args.run_name.empty() ? time_and_host() : args.run_name);
}

TrackingCallback::TrackingCallback(std::vector<std::shared_ptr<Tracker>> trackers)
    : trackers_(std::move(trackers)), is_started_(true) {}

TrackingCallback::~TrackingCallback() {
  for (const auto& tracker : trackers_) tracker->finish();
}

void TrackingCallback::start(const TrainingArguments& args) {
  if (is_started_) return;
  is_started_ = true;
  const TrackerOptions options{.folder = folder_of_trackers(args), .run_name = args.run_name};
  for (const std::string& name : expanded_tracker_names(args.report_to))
    trackers_.push_back(make_tracker(name, options));
}

std::map<std::string, double> TrackingCallback::attributes() const {
  std::map<std::string, double> attributes;
  for (const auto& tracker : trackers_) {
    for (const auto& [key, number] : tracker->position())
      attributes.emplace(key_prefix(*tracker) + key, number);
  }
  return attributes;
}

void TrackingCallback::restore(const std::map<std::string, double>& attributes) {
  restored_ = attributes;
}

// Continues a tracker at the position of the checkpoint that the run resumes from, if there is one.
// Returns true if the tracker has the configuration already.
bool TrackingCallback::resume(Tracker& tracker, std::int64_t step) const {
  const std::string prefix = key_prefix(tracker);
  TrackerPosition position;
  for (const auto& [key, number] : restored_) {
    if (starts_with(key, prefix)) position[key.substr(prefix.size())] = number;
  }
  return !position.empty() && tracker.resume(position, step);
}

void TrackingCallback::on_train_begin(const TrainerEvent& event, TrainerControl&) {
  if (!event.state.is_world_process_zero) return;
  start(event.args);
  const bool begins = event.state.global_step == 0;
  if (begins && restored_.empty())
    restored_ = has_failed_ && !begun_.empty() ? begun_ : begin_of_trackers(event.args.output_dir);
  const std::string args = to_json(event.args);
  const auto* const pretrained = dynamic_cast<const PreTrainedModel*>(&event.model);
  const std::string model = pretrained ? pretrained->config_json() : "";
  TrackedConfiguration values;
  if (!model.empty()) add_values(values, model);
  add_values(values, args);
  for (const auto& tracker : trackers_) {
    if (resume(*tracker, event.state.global_step)) continue;
    tracker->store_init_configuration(values);
    tracker->log_text("args", args, 0);
    if (!model.empty()) tracker->log_text("model_config", model, 0);
  }
  restored_.clear();
  has_failed_ = false;
  if (!begins) return;
  begun_ = attributes();
  keep_begin_of_trackers(event.args.output_dir, begun_);
}

void TrackingCallback::on_log(const TrainerEvent& event, TrainerControl&, const Metrics& logs) {
  if (!event.state.is_world_process_zero) return;
  start(event.args);
  const TrackedScalars grouped = with_groups(logs);
  for (const auto& tracker : trackers_)
    tracker->log(tracker->keeps_log_names() ? logs : grouped, event.state.global_step);
}

}  // namespace hasten
