#include "checkpoint/training_position.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_number.h"
#include "base/strict_json.h"
#include "checkpoint/elastic_position.h"
#include "checkpoint/loss_scale_position.h"
#include "checkpoint/thread_count.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void throw_position(const fs::path& file, const std::string& got) {
  throw DataError("checkpoint.position",
                  {.what = file.string(), .got = got, .expected = "scheduler_step and loader"});
}

// JSON has no NaN, so a sum of losses that is not finite is null.
double sum_from(const Json& json) {
  const Json& sum = json.at("sum");
  return sum.is_null() ? std::nan("") : sum.get<double>();
}

Json json_of(const LossSum& losses) {
  return {
      {"finite_steps", losses.finite}, {"nonfinite_steps", losses.nonfinite}, {"sum", losses.sum}};
}

LossSum loss_sum_from(const Json& json) {
  return {.sum = sum_from(json),
          .finite = whole_number_at(json, "finite_steps"),
          .nonfinite = whole_number_at(json, "nonfinite_steps")};
}

Json json_of(const WindowPosition& window) {
  return {{"micro_batches", window.micro_batches},
          {"backward_passes", window.backward_passes},
          {"rows", window.rows},
          {"weight", window.weight},
          {"loss", window.loss},
          {"items", window.items},
          {"tokens", window.tokens},
          {"flos", window.flos}};
}

WindowPosition window_from(const Json& json) {
  // A loss that is not finite is null.
  const Json& loss = json.at("loss");
  return {.micro_batches = whole_number_at(json, "micro_batches"),
          .backward_passes = whole_number_at(json, "backward_passes"),
          .rows = whole_number_at(json, "rows", 0),  // earlier versions did not save it
          .weight = json.at("weight").get<double>(),
          .loss = loss.is_null() ? std::nan("") : loss.get<double>(),
          .items = json.at("items").get<double>(),
          .tokens = json.at("tokens").get<double>(),
          .flos = json.at("flos").get<double>()};
}

Json json_of(const DueWork& due) {
  return {{"evaluation", due.evaluation},
          {"epoch_end", due.epoch_end},
          {"learning_rate", json_of_number<Json>(due.learning_rate)},
          {"grad_norm", json_of_number<Json>(due.grad_norm)}};
}

// Throws JsonError unless the number, or the text of one that is not finite, is there.
double real_number_at(const Json& json, const char* key) {
  const std::optional<double> number = real_number_in(json.at(key));
  if (!number) throw JsonError(str("a value of ", key, " that is not a number"));
  return *number;
}

DueWork due_work_from(const Json& json) {
  return {.evaluation = json.at("evaluation").get<bool>(),
          .epoch_end = json.at("epoch_end").get<bool>(),
          .learning_rate = real_number_at(json, "learning_rate"),
          .grad_norm = real_number_at(json, "grad_norm")};
}

// In checkpoints of earlier versions a number that is not finite is null.
std::map<std::string, double> schedule_state_from(const Json& json) {
  std::map<std::string, double> state;
  for (const auto& [name, number] : json.items())
    state[name] = number.is_null() ? std::nan("") : number.get<double>();
  return state;
}

// Passes the JSON of the file to `read`, and returns its result.
template <class Read>
auto read_position_file(const fs::path& folder, const Read& read) {
  const fs::path file = folder / kTrainingPositionFile;
  const std::string text = read_file(file);
  try {
    return read(parse_strict_json(text));
  } catch (const JsonError& error) {
    throw_position(file, error.what());
  } catch (const Json::exception& error) {
    throw_position(file, error.what());
  }
}

}  // namespace

void save_training_position(const fs::path& folder, const TrainingPosition& position,
                            const std::string& optimizer,
                            const std::optional<OptionsOfRun>& options) {
  Json json = {{"optimizer", optimizer},
               {"scheduler_step", position.scheduler_step},
               {"num_processes", position.num_processes},
               {"loader",
                {{"seed", position.loader.seed},
                 {"epoch", position.loader.epoch},
                 {"batch", position.loader.batch},
                 {"rows", position.loader.rows}}}};
  if (position.losses) {
    json["losses"] = {{"of_the_run", json_of(position.losses->of_run)},
                      {"since_the_last_log", json_of(position.losses->since_log)},
                      {"last_logged_step", position.losses->last_logged_step}};
  }
  if (position.data)
    json["data"] = {{"rows", position.data->rows}, {"sample", position.data->sample}};
  if (position.metric_schedule) {
    json["metric_schedule"] = {{"type", position.metric_schedule->type},
                               {"state", position.metric_schedule->state}};
  }
  for (const WindowPosition& window : position.windows) json["windows"].push_back(json_of(window));
  if (position.hash_chain) {
    json["hash_chain"] = {{"previous", position.hash_chain->previous},
                          {"rows", position.hash_chain->rows}};
  }
  if (position.due) json["due"] = json_of(*position.due);
  add_elastic(json, position.elastic);
  add_loss_scale(json, position.loss_scale);
  add_thread_count(json);
  if (options)
    json["optimizer_options"] = {{"groups", options->groups}, {"arguments", options->arguments}};
  write_file_atomically(folder / kTrainingPositionFile, json.dump(2) + "\n");
}

TrainingPosition load_training_position(const fs::path& folder) {
  return read_position_file(folder, [](const Json& json) {
    const auto& loader = json.at("loader");
    TrainingPosition position = {.optimizer = json.at("optimizer").get<std::string>(),
                                 .scheduler_step = whole_number_at(json, "scheduler_step"),
                                 .num_processes = whole_number_at(json, "num_processes", 1),
                                 .loader = {.seed = unsigned_number_at(loader, "seed"),
                                            .epoch = whole_number_at(loader, "epoch"),
                                            .batch = whole_number_at(loader, "batch"),
                                            .rows = whole_number_at(loader, "rows", -1)}};
    // Earlier versions did not write the losses and the data.
    if (json.contains("losses")) {
      const Json& losses = json.at("losses");
      position.losses = {.of_run = loss_sum_from(losses.at("of_the_run")),
                         .since_log = loss_sum_from(losses.at("since_the_last_log")),
                         .last_logged_step = whole_number_at(losses, "last_logged_step")};
    }
    if (json.contains("data")) {
      position.data = {.rows = whole_number_at(json.at("data"), "rows"),
                       .sample = json.at("data").at("sample").get<std::string>()};
    }
    if (json.contains("metric_schedule")) {
      const Json& schedule = json.at("metric_schedule");
      position.metric_schedule = {.type = schedule.at("type").get<std::string>(),
                                  .state = schedule_state_from(schedule.at("state"))};
    }
    if (json.contains("windows")) {
      for (const Json& window : json.at("windows")) position.windows.push_back(window_from(window));
    }
    if (json.contains("hash_chain")) {
      const Json& chain = json.at("hash_chain");
      position.hash_chain = {.previous = chain.at("previous").get<std::string>(),
                             .rows = chain.at("rows").get<std::vector<std::string>>()};
    }
    // Earlier versions did not write it.
    if (json.contains("due")) position.due = due_work_from(json.at("due"));
    position.elastic = elastic_of(json);
    position.loss_scale = loss_scale_of(json);
    return position;
  });
}

RunRecord load_run_record(const fs::path& folder) {
  return read_position_file(folder, [](const Json& json) {
    RunRecord record{.options = {}, .threads = thread_count_of(json)};
    if (json.contains("optimizer_options")) {
      const Json& options = json.at("optimizer_options");
      for (const char* const key : {"groups", "arguments"}) {
        if (!options.at(key).is_array())
          throw JsonError(str("a value of optimizer_options.", key, " that is not a list"));
      }
      record.options = {.groups = options.at("groups"), .arguments = options.at("arguments")};
    }
    return record;
  });
}

}  // namespace hasten
