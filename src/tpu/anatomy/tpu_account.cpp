// Reads the account of a dry TPU that the module wrote, and shows it as text and JSON.
#include "hasten/tpu/anatomy/tpu_account.h"

#include <algorithm>

#include "anatomy/comparison_text.h"
#include "base/count_text.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

TpuMemoryUsage usage_of(const Json& json) {
  return {.tensors = json.at("tensors"),
          .temporaries = json.at("temporaries"),
          .code = json.at("code"),
          .program = json.at("program")};
}

Json json_of(const TpuMemoryUsage& usage) {
  return {{"total", usage.total()},
          {"tensors", usage.tensors},
          {"temporaries", usage.temporaries},
          {"code", usage.code},
          {"program", usage.program}};
}

// Returns the bytes that tensors took when the last forward pass with a backward pass began, or the
// last forward pass if there was no backward pass. By then programs have read all tensors that
// stay, so their sizes no longer change.
std::int64_t before_last_step(const Json& visits) {
  std::int64_t forward = 0, last = 0;
  for (const Json& visit : visits) {
    if (visit.at("phase") == "forward") forward = visit.at("tensors_before");
    if (visit.at("phase") == "backward") last = forward;
  }
  return last == 0 ? forward : last;
}

std::vector<TpuPhase> phases_of(const Json& visits) {
  std::vector<TpuPhase> phases;
  for (const Json& visit : visits) {
    const std::string name = visit.at("phase");
    auto found = std::find_if(phases.begin(), phases.end(),
                              [&](const TpuPhase& phase) { return phase.name == name; });
    if (found == phases.end()) found = phases.insert(phases.end(), {.name = name, .peak = {}});
    const TpuMemoryUsage peak = usage_of(visit.at("peak"));
    if (peak.total() > found->peak.total()) found->peak = peak;
  }
  return phases;
}

// The components that are shown, in the order in which they are shown.
constexpr Component kShown[] = {Component::model_weights, Component::optimizer_states,
                                Component::gradients,     Component::activations,
                                Component::functionality, Component::unknown};

std::string ratio(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "-";
  return fixed(static_cast<double>(part) / static_cast<double>(whole), 2);
}

std::string components_text(const TpuAccount& account, const TpuPrediction* prediction) {
  Rows rows;
  for (const Component component : kShown) {
    const std::int64_t bytes = bytes_of(account.components, component);
    const bool held = component == Component::unknown;
    std::vector<std::string> row = {held ? "other tensors" : std::string(name_of(component)),
                                    grouped(bytes)};
    if (prediction != nullptr) {
      const std::int64_t predicted = bytes_of(prediction->most, component);
      row.push_back(grouped(predicted));
      row.push_back(ratio(bytes, predicted));
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::string> header = {"peak of each component", "bytes on the TPU"};
  if (prediction != nullptr) header.insert(header.end(), {"anatomy (CPU)", "ratio"});
  return table(header, rows);
}

std::string peak_text(const TpuAccount& account, const TpuPrediction* prediction) {
  Rows rows = {{"tensors", grouped(account.peak.tensors)},
               {"temporaries of the running program", grouped(account.peak.temporaries)},
               {"code of the loaded programs", grouped(account.peak.code)},
               {"total", grouped(account.peak.total())}};
  std::string text = table({"memory at the peak", "bytes on the TPU"}, rows);
  if (!account.peak.program.empty())
    text += "The running program was " + account.peak.program + ". ";
  if (prediction != nullptr)
    text += "The anatomy predicts " + grouped(prediction->peak) + " bytes, without code.";
  return text + "\n";
}

std::string phases_text(const TpuAccount& account) {
  Rows rows;
  for (const TpuPhase& phase : account.phases) {
    rows.push_back({phase.name, grouped(phase.peak.total()), grouped(phase.peak.tensors),
                    grouped(phase.peak.temporaries), phase.peak.program});
  }
  return table({"peak in the phase", "total", "tensors", "temporaries", "program"}, rows);
}

std::string verdict(const TpuAccount& account) {
  if (account.memory == 0) return "The memory size of this device is unknown.\n";
  const std::string has = str("A device has ", grouped(account.memory), " bytes for programs. ");
  const std::int64_t left = account.memory - account.peak.total();
  if (left < 0)
    return str(has, "The step does not fit: ", human_bytes(-left), " more are needed.\n");
  if (!fits(account))
    return has + "The step does not fit: the compiler ran out of memory (see below).\n";
  if (!account.stopped.empty()) return has + "The step fits so far, but the program ended early.\n";
  return str(has, "The step fits: ", human_bytes(left), " remain free.\n");
}

std::string notes(const TpuAccount& account) {
  std::string text;
  if (!account.ahead_of_time) {
    text += "note: compiled for " + account.compiled_for +
            " by a compiler that is not for TPUs, so the figures are not those of a TPU\n";
  }
  if (!account.in_order) {
    text +=
        "note: operators were deferred, so phases, activations and other tensors are as of the "
        "time at which the operators ran\n";
  }
  if (account.reads > 0) {
    text += str("note: ", grouped(account.reads),
                " values were read back; they are 1 or true, because nothing is computed\n");
  }
  if (account.unpadded_bytes > 0) {
    text +=
        str("note: ", grouped(account.unpadded_bytes),
            " bytes belong to tensors that no program read; they are counted without padding\n");
  }
  if (account.mismatched_runs > 0) {
    text += str("note: in ", grouped(account.mismatched_runs),
                " runs the sum of the argument sizes differs from the compiler's figure\n");
  }
  return text;
}

std::string failures_text(const TpuAccount& account) {
  std::string text;
  for (const TpuFailure& each : account.failed) {
    text +=
        str("\nnot compiled: ", each.program.empty() ? "a program" : each.program,
            each.module.empty() ? "" : ", in or after " + each.module, "\n  ", each.message, "\n");
  }
  return text;
}

bool ran_out_of_memory(const TpuFailure& failure) {
  return failure.message.find("HbmOom") != std::string::npos ||
         failure.message.find("Ran out of memory") != std::string::npos;
}

}  // namespace

bool fits(const TpuAccount& account) {
  return (account.memory == 0 || account.peak.total() <= account.memory) &&
         std::none_of(account.failed.begin(), account.failed.end(), ran_out_of_memory);
}

TpuAccount read_tpu_account(const std::string& json) {
  const Json all = Json::parse(json);
  TpuAccount account{.topology = all.at("topology"),
                     .compiled_for = all.at("compiled_for"),
                     .ahead_of_time = all.at("ahead_of_time"),
                     .devices = all.at("devices"),
                     .memory = all.at("memory"),
                     .programs = all.at("programs"),
                     .runs = all.at("runs"),
                     .compile_seconds = all.at("compile_seconds"),
                     .reads = all.at("reads"),
                     .activations = all.at("activations"),
                     .before_last_step = before_last_step(all.at("visits")),
                     .peak = usage_of(all.at("peak")),
                     .now = usage_of(all.at("now")),
                     .phases = phases_of(all.at("visits")),
                     .unpadded_bytes = all.at("not_laid_out"),
                     .mismatched_runs = all.at("unlike")};
  for (const Json& each : all.at("failed"))
    account.failed.push_back({.program = each.at("program"), .message = each.at("message")});
  return account;
}

TpuPrediction to_prediction(const Report& report) {
  return {.peak = report.memory.peak, .most = report.memory.most};
}

TpuPrediction read_prediction(const std::string& report_json) {
  const Json memory = Json::parse(report_json).at("memory");
  TpuPrediction prediction{.peak = memory.at("peak")};
  for (std::size_t i = 0; i < kComponents; ++i)
    prediction.most[i] = memory.at("most").at(std::string(name_of(static_cast<Component>(i))));
  return prediction;
}

std::string to_text(const TpuAccount& account, const TpuPrediction* prediction) {
  std::string text = str("Predicted for tpu:", account.topology, ", one device of ",
                         account.devices, " (", account.compiled_for, "), ",
                         count_text(account.steps, "step"), ": compiled, not run\n\n");
  text += components_text(account, prediction) + "\n" + peak_text(account, prediction) + "\n" +
          phases_text(account) + "\n";
  text += str("Programs: ", grouped(account.programs), " compiled in ",
              fixed(account.compile_seconds, 1), " s, run ", grouped(account.runs), " times, ",
              account.failed.size(), " failed");
  if (account.steps > 2)
    text += str("; ", account.programs_after_second_step, " compiled after the second step");
  text += ".\n" + verdict(account) + notes(account) + failures_text(account);
  if (!account.stopped.empty()) text += "\nThe program ended early: " + account.stopped + "\n";
  if (account.what_if) text += "\nWhat if: " + to_text(*account.what_if);
  return text;
}

std::string to_json(const TpuAccount& account, const TpuPrediction* prediction) {
  Json components = Json::object(), phases = Json::object(), failed = Json::array();
  for (const Component component : kShown)
    components[std::string(name_of(component))] = bytes_of(account.components, component);
  for (const TpuPhase& phase : account.phases) phases[phase.name] = json_of(phase.peak);
  for (const TpuFailure& each : account.failed) {
    failed.push_back(
        {{"program", each.program}, {"module", each.module}, {"message", each.message}});
  }
  Json out = {{"device", "tpu:" + account.topology},
              {"compiled_for", account.compiled_for},
              {"ahead_of_time", account.ahead_of_time},
              {"devices", account.devices},
              {"memory", account.memory},
              {"fits", fits(account)},
              {"in_order", account.in_order},
              {"steps", account.steps},
              {"programs", account.programs},
              {"programs_after_second_step", account.programs_after_second_step},
              {"runs", account.runs},
              {"compile_seconds", account.compile_seconds},
              {"reads", account.reads},
              {"components", components},
              {"peak", json_of(account.peak)},
              {"after", json_of(account.now)},
              {"peak_in_phase", phases},
              {"failed", failed},
              {"not_laid_out", account.unpadded_bytes},
              {"unlike", account.mismatched_runs},
              {"stopped", account.stopped}};
  if (account.what_if) out["what_if"] = json_of(*account.what_if);
  if (prediction != nullptr) {
    Json most = Json::object();
    for (std::size_t i = 0; i < kComponents; ++i)
      most[std::string(name_of(static_cast<Component>(i)))] = prediction->most[i];
    out["anatomy"] = {{"device", "cpu"}, {"peak", prediction->peak}, {"most", most}};
  }
  return out.dump(2) + "\n";
}

void write_account(const std::filesystem::path& file, const TpuAccount& account,
                   const TpuPrediction* prediction) {
  const std::string name = file.filename().string();
  write_file_atomically(file, ends_with(name, ".json")   ? to_json(account, prediction)
                              : ends_with(name, ".html") ? to_html(account, prediction)
                                                         : to_text(account, prediction));
}

}  // namespace hasten::anatomy
