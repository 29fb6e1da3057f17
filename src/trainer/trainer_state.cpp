#include "hasten/trainer/detail/trainer_state.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "base/json_number.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

// Writes a whole number without a decimal point, and any other number with one. A file that was
// read may have numbers beyond 64 bits.
Json shortest(double value) {
  const auto whole = whole_number_in(Json(value));
  return whole ? Json(*whole) : Json(value);
}

// Counts are integers in transformers' files, everything else is a float. JSON has no NaN or
// infinity, so these are written as null.
Json number(const std::string& key, double value) {
  if (!std::isfinite(value)) return nullptr;
  const bool count = key == "step" || key == "nonfinite_losses" || key == "num_input_tokens_seen" ||
                     key.find("_mem_") != std::string::npos;
  return count ? shortest(value) : Json(value);
}

Json object_of(const Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [key, value] : metrics) out[key] = number(key, value);
  return out;
}

// A callback needs all its numbers again, so those that are not finite are texts.
Json attributes_json(const std::map<std::string, double>& attributes) {
  Json out = Json::object();
  for (const auto& [key, value] : attributes)
    out[key] = std::isfinite(value) ? number(key, value) : json_of_number<Json>(value);
  return out;
}

std::int64_t count_in(const Json& value, const char* key) {
  const auto number = whole_number_in(value);
  if (!number) throw std::invalid_argument(std::string(key) + " is not a whole number");
  return *number;
}

template <class T>
void read(const Json& from, const char* key, T& to) {
  const auto found = from.find(key);
  if (found == from.end() || found->is_null()) return;
  if constexpr (std::is_integral_v<T>) {
    to = count_in(*found, key);
  } else {
    to = found->get<T>();
  }
}

}  // namespace

std::string metrics_json(const Metrics& metrics) { return object_of(metrics).dump(4); }

std::string TrainerState::to_json() const {
  Json history = Json::array();
  for (const LogEntry& entry : log_history) history.push_back(object_of(entry));
  Json stateful = Json::object();
  for (const auto& [name, attributes] : callbacks)
    stateful[name] = {{"args", Json::object()}, {"attributes", attributes_json(attributes)}};
  const Json out = {
      {"best_global_step", best_global_step ? Json(*best_global_step) : Json()},
      {"best_metric", best_metric ? Json(*best_metric) : Json()},
      {"best_model_checkpoint",
       best_model_checkpoint.empty() ? Json() : Json(best_model_checkpoint)},
      {"epoch", epoch},
      {"eval_steps", shortest(eval_steps)},
      {"global_step", global_step},
      {"is_hyper_param_search", false},
      {"is_local_process_zero", is_local_process_zero},
      {"is_world_process_zero", is_world_process_zero},
      {"log_history", history},
      {"logging_steps", shortest(logging_steps)},
      {"max_steps", max_steps},
      {"num_input_tokens_seen", num_input_tokens_seen},
      {"num_train_epochs", num_train_epochs},
      {"save_steps", shortest(save_steps)},
      {"stateful_callbacks", stateful},
      {"total_flos", total_flos},
      {"train_batch_size", train_batch_size},
      {"trial_name", nullptr},
      {"trial_params", nullptr},
  };
  // A path need not be valid UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainerState TrainerState::from_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  TrainerState state;
  try {
    const Json in = parse_strict_json(text);
    if (!in.is_object()) throw std::invalid_argument("not a JSON object");
    read(in, "epoch", state.epoch);
    read(in, "global_step", state.global_step);
    read(in, "max_steps", state.max_steps);
    read(in, "num_train_epochs", state.num_train_epochs);
    read(in, "logging_steps", state.logging_steps);
    read(in, "eval_steps", state.eval_steps);
    read(in, "save_steps", state.save_steps);
    read(in, "train_batch_size", state.train_batch_size);
    read(in, "num_input_tokens_seen", state.num_input_tokens_seen);
    read(in, "total_flos", state.total_flos);
    read(in, "best_model_checkpoint", state.best_model_checkpoint);
    if (in.contains("best_metric") && !in["best_metric"].is_null())
      state.best_metric = in["best_metric"].get<double>();
    if (in.contains("best_global_step") && !in["best_global_step"].is_null())
      state.best_global_step = count_in(in["best_global_step"], "best_global_step");
    for (const Json& entry : in.at("log_history")) {
      LogEntry log;
      for (const auto& [key, value] : entry.items())
        log[key] = value.is_null() ? std::nan("") : value.get<double>();
      state.log_history.push_back(std::move(log));
    }
    if (in.contains("stateful_callbacks")) {
      for (const auto& [name, callback] : in["stateful_callbacks"].items()) {
        if (!callback.is_object() || !callback.contains("attributes")) continue;
        for (const auto& [key, value] : callback["attributes"].items()) {
          if (const auto number = real_number_in(value)) state.callbacks[name][key] = *number;
        }
      }
    }
  } catch (const std::exception& error) {
    throw DataError("trainer.state",
                    {.what = path.string(),
                     .got = error.what(),
                     .expected = "a trainer_state.json as hasten or transformers writes it"});
  }
  return state;
}

}  // namespace hasten
