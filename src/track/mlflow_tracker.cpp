#include "hasten/track/mlflow_tracker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json_line.h"
#include "base/start_thread.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/options/environment.h"
#include "options/variable_of.h"
#include "track/appended_file.h"
#include "track/http.h"

namespace hasten {
namespace {

using FlowJson = nlohmann::json;
using FlowClock = std::chrono::steady_clock;

// The limits of a log-batch request.
constexpr std::size_t kMostMetrics = 900, kMostParameters = 100, kMostParameterBytes = 6000;
constexpr double kRequestSeconds = 10;
constexpr std::chrono::seconds kFirstPause(1), kLongestPause(30), kFinishTime(10);

std::int64_t milliseconds_since_epoch() {
  return static_cast<std::int64_t>(seconds_since_epoch() * 1000);
}

// JSON has neither NaN nor infinity, so MLflow reads them as texts.
FlowJson number_for_mlflow(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

// Replaces the characters that MLflow refuses in names.
std::string name_for_mlflow(std::string name) {
  for (char& letter : name) {
    const bool is_allowed = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                            (letter >= 'a' && letter <= 'z') ||
                            std::string_view("_-. :/").find(letter) != std::string_view::npos;
    if (!is_allowed) letter = '_';
  }
  return name;
}

// Returns the first `count` elements of a queue as a JSON list.
FlowJson first_of(const std::deque<FlowJson>& queue, std::size_t count) {
  FlowJson list = FlowJson::array();
  for (std::size_t i = 0; i < std::min(count, queue.size()); ++i) list.push_back(queue[i]);
  return list;
}

}  // namespace

// The queue and the thread that empties it.
class MLflowTracker::Sender {
 public:
  explicit Sender(const MLflowOptions& options)
      : options_(options),
        address_(parse_http_address(options.tracking_uri)),
        run_id_(options.run_id),
        thread_(start_thread([this] { run(); })) {
    if (!thread_.joinable()) log_line("hasten: MLflow gets nothing: no thread can be started");
  }

  ~Sender() {
    {
      const std::lock_guard lock(mutex_);
      finishing_ = true;
      give_up_at_ = FlowClock::now() + kFinishTime;
    }
    wakes_.notify_one();
    if (thread_.joinable()) thread_.join();
    const std::size_t lost = dropped_ + metrics_.size() + parameters_.size();
    if (lost > 0) log_line(str("hasten: MLflow did not get ", lost, " of the run's values"));
  }

  void add_parameters(std::vector<FlowJson> parameters) {
    const std::lock_guard lock(mutex_);
    parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
    wakes_.notify_one();
  }

  void add_metrics(std::vector<FlowJson> metrics) {
    const std::lock_guard lock(mutex_);
    for (FlowJson& metric : metrics) {
      if (metrics_.size() >= options_.most_waiting) {
        metrics_.pop_front();
        ++dropped_;
        if (in_flight_metrics_ > 0) --in_flight_metrics_;
      }
      metrics_.push_back(std::move(metric));
    }
    wakes_.notify_one();
  }

 private:
  enum class Sent { done, later, refused };

  void run() {
    auto pause = kFirstPause;
    std::unique_lock lock(mutex_);
    while (true) {
      wakes_.wait(lock, [&] { return finishing_ || !metrics_.empty() || !parameters_.empty(); });
      const bool is_last = metrics_.empty() && parameters_.empty();
      const Sent sent = is_last ? send_end(lock) : send_next(lock);
      if (is_last && sent != Sent::later) return;
      if (sent == Sent::done) {
        pause = kFirstPause;
        continue;
      }
      if (sent == Sent::refused && run_id_.empty()) return;  // The run cannot be made.
      if (sent == Sent::refused) continue;
      if (finishing_ && FlowClock::now() >= give_up_at_) return;
      // The end of the run shortens a pause.
      wakes_.wait_for(lock, finishing_ ? kFirstPause : pause,
                      [&] { return finishing_ && !knows_end_; });
      knows_end_ = finishing_;
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  // Makes the run if it is not made yet, and sends the first values of a queue. Parameters have a
  // request of their own, because the server refuses them if a continued run has different ones.
  Sent send_next(std::unique_lock<std::mutex>& lock) {
    FlowJson body = {{"metrics", first_of(metrics_, parameters_.empty() ? kMostMetrics : 0)},
                     {"params", first_of(parameters_, kMostParameters)}};
    const std::size_t parameters = body["params"].size();
    in_flight_metrics_ = body["metrics"].size();
    lock.unlock();
    Sent sent = begin_run();
    if (sent == Sent::done) {
      body["run_id"] = run_id_;
      sent = post("runs/log-batch", body);
    }
    lock.lock();
    const bool gone = sent == Sent::done || (sent == Sent::refused && !run_id_.empty());
    if (!gone) return sent;
    if (sent == Sent::refused) dropped_ += in_flight_metrics_ + parameters;
    metrics_.erase(metrics_.begin(),
                   metrics_.begin() + static_cast<std::ptrdiff_t>(in_flight_metrics_));
    parameters_.erase(parameters_.begin(),
                      parameters_.begin() + static_cast<std::ptrdiff_t>(parameters));
    return sent;
  }

  Sent send_end(std::unique_lock<std::mutex>& lock) {
    if (run_id_.empty()) return Sent::done;
    lock.unlock();
    const Sent sent = post(
        "runs/update",
        {{"run_id", run_id_}, {"status", "FINISHED"}, {"end_time", milliseconds_since_epoch()}});
    lock.lock();
    return sent;
  }

  Sent begin_run() {
    if (!run_id_.empty()) return Sent::done;
    if (experiment_id_.empty()) {
      const Sent found = find_experiment();
      if (found != Sent::done) return found;
    }
    FlowJson body = {{"experiment_id", experiment_id_}, {"start_time", milliseconds_since_epoch()}};
    if (!options_.run_name.empty()) body["run_name"] = options_.run_name;
    FlowJson answer;
    const Sent made = post("runs/create", body, &answer);
    if (made != Sent::done) return made;
    return take_text(answer, "/run/info/run_id", run_id_);
  }

  Sent find_experiment() {
    FlowJson answer;
    const std::string path =
        "experiments/get-by-name?experiment_name=" + percent_encoded(options_.experiment);
    const HttpAnswer found = request({.method = "GET", .path = kApi + path});
    if (found.status == 404) {
      const Sent made = post("experiments/create", {{"name", options_.experiment}}, &answer);
      return made == Sent::done ? take_text(answer, "/experiment_id", experiment_id_) : made;
    }
    const Sent sent = judge(path, found, &answer);
    return sent == Sent::done ? take_text(answer, "/experiment/experiment_id", experiment_id_)
                              : sent;
  }

  Sent take_text(const FlowJson& answer, const char* pointer, std::string& to) {
    const FlowJson::json_pointer at(pointer);
    if (!answer.contains(at) || !answer[at].is_string()) {
      report(str("its answer has no ", pointer + 1));
      return Sent::refused;
    }
    to = answer[at].get<std::string>();
    return Sent::done;
  }

  Sent post(const std::string& path, const FlowJson& body, FlowJson* answer = nullptr) {
    return judge(path, request({.method = "POST", .path = kApi + path, .body = json_line(body)}),
                 answer);
  }

  HttpAnswer request(HttpRequest request) {
    request.token = options_.token;
    return send_http(address_, request, kRequestSeconds);
  }

  Sent judge(const std::string& path, const HttpAnswer& got, FlowJson* answer) {
    if (got.status == 200) {
      if (answer != nullptr) *answer = parse_json_or_discard<FlowJson>(got.body);
      return Sent::done;
    }
    const bool may_succeed_later = got.status == 0 || got.status == 429 || got.status >= 500;
    report(got.status == 0 ? got.why
                           : str(path.substr(0, path.find('?')), " is answered with status ",
                                 got.status, ": ", got.body.substr(0, 300)));
    return may_succeed_later ? Sent::later : Sent::refused;
  }

  // Logs the first failure only.
  void report(const std::string& why) {
    if (std::exchange(has_reported_, true)) return;
    log_line(str("hasten: MLflow at ", options_.tracking_uri, ": ", why,
                 ". The run continues; values that can be sent later are kept"));
  }

  inline static const std::string kApi = "/api/2.0/mlflow/";

  const MLflowOptions options_;
  const HttpAddress address_;
  // Only the thread uses these.
  std::string experiment_id_, run_id_;
  bool has_reported_ = false, knows_end_ = false;
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<FlowJson> metrics_, parameters_;
  // The number of metrics that are being sent; they are the first of metrics_.
  std::size_t in_flight_metrics_ = 0;
  std::size_t dropped_ = 0;
  bool finishing_ = false;
  FlowClock::time_point give_up_at_;

  std::thread thread_;  // The last member, because it uses the others.
};

MLflowOptions mlflow_options(const TrackerOptions& options) {
  const config::Environment environment = config::whole_environment();
  const auto variable = [&](const char* name) { return config::variable_of(environment, name); };
  const std::string uri = variable("MLFLOW_TRACKING_URI");
  if (uri.empty()) {
    throw ConfigError("track.mlflow-uri", {.what = "tracker mlflow",
                                           .got = "no MLFLOW_TRACKING_URI",
                                           .expected = "the address of a server in this variable",
                                           .hint = "export MLFLOW_TRACKING_URI=http://HOST:5000"});
  }
  const std::string experiment = variable("MLFLOW_EXPERIMENT_NAME");
  const std::string project = options.project.empty() ? "Default" : options.project;
  return {.tracking_uri = uri,
          .experiment = experiment.empty() ? project : experiment,
          .run_name = options.run_name,
          .run_id = variable("MLFLOW_RUN_ID"),
          .token = variable("MLFLOW_TRACKING_TOKEN")};
}

MLflowTracker::MLflowTracker(const MLflowOptions& options)
    : sender_(std::make_unique<Sender>(options)) {}

MLflowTracker::~MLflowTracker() = default;

void MLflowTracker::store_init_configuration(const TrackedConfiguration& values) {
  if (!sender_) return;
  std::vector<FlowJson> parameters;
  for (const auto& [name, value] : values) {
    const std::string text = std::visit([](const auto& each) { return str(each); }, value);
    if (text.size() <= kMostParameterBytes)
      parameters.push_back({{"key", name_for_mlflow(name)}, {"value", text}});
  }
  sender_->add_parameters(std::move(parameters));
}

void MLflowTracker::log(const TrackedScalars& values, std::int64_t step) {
  if (!sender_) return;
  std::vector<FlowJson> metrics;
  const std::int64_t time = milliseconds_since_epoch();
  for (const auto& [name, value] : values) {
    metrics.push_back({{"key", name_for_mlflow(name)},
                       {"value", number_for_mlflow(value)},
                       {"timestamp", time},
                       {"step", step}});
  }
  sender_->add_metrics(std::move(metrics));
}

void MLflowTracker::finish() { sender_.reset(); }

}  // namespace hasten
