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
#include "hasten/options/detail/environment.h"
#include "options/variable_of.h"
#include "track/append_only_file.h"
#include "track/http.h"

namespace hasten {
namespace {

using FlowJson = nlohmann::json;
using FlowClock = std::chrono::steady_clock;

// The limits of a log-batch request.
constexpr std::size_t kMaxMetrics = 900, kMaxParameters = 100, kMaxParameterBytes = 6000;
constexpr double kRequestSeconds = 10;
constexpr std::chrono::seconds kInitialBackoff(1), kMaxBackoff(30);
// The end of a run waits this long for a server that takes the values, and for one that does not.
constexpr std::chrono::seconds kFinishTimeout(20), kRetryTimeout(10);

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
  for (char& character : name) {
    const bool is_allowed = (character >= '0' && character <= '9') ||
                            (character >= 'A' && character <= 'Z') ||
                            (character >= 'a' && character <= 'z') ||
                            std::string_view("_-. :/").find(character) != std::string_view::npos;
    if (!is_allowed) character = '_';
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
      finishing_since_ = FlowClock::now();
    }
    wakeup_.notify_one();
    if (thread_.joinable()) thread_.join();
    const std::size_t lost = dropped_ + metrics_.size() + parameters_.size();
    if (lost > 0) log_line(str("hasten: MLflow did not get ", lost, " of the run's values"));
  }

  void add_parameters(std::vector<FlowJson> parameters) {
    const std::lock_guard lock(mutex_);
    parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
    wakeup_.notify_one();
  }

  void add_metrics(std::vector<FlowJson> metrics) {
    const std::lock_guard lock(mutex_);
    for (FlowJson& metric : metrics) {
      if (options_.max_queued_values == 0) {
        ++dropped_;
        continue;
      }
      if (metrics_.size() >= options_.max_queued_values) {
        metrics_.pop_front();
        ++dropped_;
        if (in_flight_metrics_ > 0) --in_flight_metrics_;
      }
      metrics_.push_back(std::move(metric));
    }
    wakeup_.notify_one();
  }

 private:
  enum class SendResult { done, retry, refused };

  void run() {
    auto pause = kInitialBackoff;
    std::unique_lock lock(mutex_);
    while (true) {
      wakeup_.wait(lock, [&] { return finishing_ || !metrics_.empty() || !parameters_.empty(); });
      const bool is_last = metrics_.empty() && parameters_.empty();
      const SendResult sent = is_last ? end_run(lock) : send_next(lock);
      if (is_last && sent != SendResult::retry) return;
      if (has_waited_for(sent == SendResult::retry ? kRetryTimeout : kFinishTimeout)) return;
      if (sent == SendResult::done) {
        pause = kInitialBackoff;
        continue;
      }
      if (sent == SendResult::refused && run_id_.empty()) return;  // The run cannot be made.
      if (sent == SendResult::refused) continue;
      // The end of the run shortens a pause.
      wakeup_.wait_for(lock, finishing_ ? kInitialBackoff : pause,
                       [&] { return finishing_ && !was_finishing_; });
      was_finishing_ = finishing_;
      pause = std::min(2 * pause, kMaxBackoff);
    }
  }

  // True if the end of the run has waited for so long. The caller holds mutex_.
  bool has_waited_for(std::chrono::seconds limit) const {
    return finishing_ && FlowClock::now() >= finishing_since_ + limit;
  }

  // Makes the run if it is not made yet, and sends the first values of a queue. Parameters have a
  // request of their own, because the server refuses them if a continued run has different ones.
  SendResult send_next(std::unique_lock<std::mutex>& lock) {
    FlowJson body = {{"metrics", first_of(metrics_, parameters_.empty() ? kMaxMetrics : 0)},
                     {"params", first_of(parameters_, kMaxParameters)}};
    const std::size_t parameters = body["params"].size();
    in_flight_metrics_ = body["metrics"].size();
    lock.unlock();
    SendResult sent = begin_run();
    if (sent == SendResult::done) {
      body["run_id"] = run_id_;
      sent = post("runs/log-batch", body);
    }
    lock.lock();
    const bool gone = sent == SendResult::done || (sent == SendResult::refused && !run_id_.empty());
    if (!gone) return sent;
    if (sent == SendResult::refused) dropped_ += in_flight_metrics_ + parameters;
    metrics_.erase(metrics_.begin(),
                   metrics_.begin() + static_cast<std::ptrdiff_t>(in_flight_metrics_));
    parameters_.erase(parameters_.begin(),
                      parameters_.begin() + static_cast<std::ptrdiff_t>(parameters));
    return sent;
  }

  SendResult end_run(std::unique_lock<std::mutex>& lock) {
    if (run_id_.empty()) return SendResult::done;
    lock.unlock();
    const SendResult sent = post(
        "runs/update",
        {{"run_id", run_id_}, {"status", "FINISHED"}, {"end_time", milliseconds_since_epoch()}});
    lock.lock();
    return sent;
  }

  SendResult begin_run() {
    if (!run_id_.empty()) return SendResult::done;
    if (experiment_id_.empty()) {
      const SendResult found = find_experiment();
      if (found != SendResult::done) return found;
    }
    FlowJson body = {{"experiment_id", experiment_id_}, {"start_time", milliseconds_since_epoch()}};
    if (!options_.run_name.empty()) body["run_name"] = options_.run_name;
    FlowJson response;
    const SendResult made = post("runs/create", body, &response);
    if (made != SendResult::done) return made;
    return read_string(response, "/run/info/run_id", run_id_);
  }

  SendResult find_experiment() {
    FlowJson response;
    const std::string path =
        "experiments/get-by-name?experiment_name=" + percent_encoded(options_.experiment);
    const HttpResponse found = request({.method = "GET", .path = kApi + path});
    if (found.status == 404) {
      const SendResult made =
          post("experiments/create", {{"name", options_.experiment}}, &response);
      return made == SendResult::done ? read_string(response, "/experiment_id", experiment_id_)
                                      : made;
    }
    const SendResult sent = check_response(path, found, &response);
    return sent == SendResult::done
               ? read_string(response, "/experiment/experiment_id", experiment_id_)
               : sent;
  }

  SendResult read_string(const FlowJson& response, const char* pointer, std::string& to) {
    const FlowJson::json_pointer at(pointer);
    if (!response.contains(at) || !response[at].is_string()) {
      report(str("its response has no ", pointer + 1));
      return SendResult::refused;
    }
    to = response[at].get<std::string>();
    return SendResult::done;
  }

  SendResult post(const std::string& path, const FlowJson& body, FlowJson* response = nullptr) {
    return check_response(
        path, request({.method = "POST", .path = kApi + path, .body = json_line(body)}), response);
  }

  HttpResponse request(HttpRequest request) {
    request.token = options_.token;
    return send_http(address_, request, seconds_for_request());
  }

  // Returns the limit of a request, which is shorter if the end of the run waits for it.
  double seconds_for_request() {
    const std::lock_guard lock(mutex_);
    if (!finishing_) return kRequestSeconds;
    const std::chrono::duration<double> left = finishing_since_ + kFinishTimeout - FlowClock::now();
    return std::clamp(left.count(), 0.0, kRequestSeconds);
  }

  SendResult check_response(const std::string& path, const HttpResponse& got, FlowJson* response) {
    if (got.status == 200) {
      if (response != nullptr) *response = parse_json_or_discard<FlowJson>(got.body);
      return SendResult::done;
    }
    const bool may_succeed_later = got.status == 0 || got.status == 429 || got.status >= 500;
    report(got.status == 0 ? got.reason
                           : str(path.substr(0, path.find('?')), " is answered with status ",
                                 got.status, ": ", got.body.substr(0, 300)));
    return may_succeed_later ? SendResult::retry : SendResult::refused;
  }

  // Logs the first failure only.
  void report(const std::string& reason) {
    if (std::exchange(has_reported_, true)) return;
    log_line(str("hasten: MLflow at ", options_.tracking_uri, ": ", reason,
                 ". The run continues; values that can be sent later are kept"));
  }

  inline static const std::string kApi = "/api/2.0/mlflow/";

  const MLflowOptions options_;
  const HttpAddress address_;
  // Only the thread uses these.
  std::string experiment_id_, run_id_;
  bool has_reported_ = false, was_finishing_ = false;
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<FlowJson> metrics_, parameters_;
  // The number of metrics that are being sent; they are the first of metrics_.
  std::size_t in_flight_metrics_ = 0;
  std::size_t dropped_ = 0;
  bool finishing_ = false;
  FlowClock::time_point finishing_since_;

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
    if (text.size() <= kMaxParameterBytes)
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
