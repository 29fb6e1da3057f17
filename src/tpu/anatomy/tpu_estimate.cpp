// Reads the estimate of a dry TPU that the module wrote, and shows it as text and JSON.
#include "hasten/tpu/anatomy/detail/tpu_estimate.h"

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

// Returns the bytes that tensors took when the last step began. By then programs have read all
// tensors that stay, so their sizes no longer change. With an optimizer, a step begins with the
// first forward pass of its window, when there are no gradients. Without one, each forward pass
// that has a backward pass is a step, and in inference each forward pass.
std::int64_t before_last_step(const Json& visits) {
  const bool has_optimizer = std::any_of(visits.begin(), visits.end(), [](const Json& each) {
    return each.at("phase") == "optimizer";
  });
  std::int64_t forward = 0, last = 0;
  bool is_in_window = false;
  for (const Json& visit : visits) {
    if (visit.at("phase") == "forward") forward = visit.at("tensors_before");
    if (visit.at("phase") == "optimizer") is_in_window = false;
    if (visit.at("phase") == "backward" && !is_in_window) {
      last = forward;
      is_in_window = has_optimizer;
    }
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
constexpr Component kReportedComponents[] = {Component::model_weights, Component::optimizer_states,
                                             Component::gradients,     Component::activations,
                                             Component::functionality, Component::unknown};

std::string ratio(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "-";
  return fixed(static_cast<double>(part) / static_cast<double>(whole), 2);
}

std::string components_text(const TpuEstimate& estimate, const TpuPrediction* prediction) {
  Rows rows;
  for (const Component component : kReportedComponents) {
    const std::int64_t bytes = bytes_of(estimate.components, component);
    const bool is_unknown = component == Component::unknown;
    std::vector<std::string> row = {is_unknown ? "other tensors" : std::string(name_of(component)),
                                    group_thousands(bytes)};
    if (prediction != nullptr) {
      const std::int64_t predicted = bytes_of(prediction->max_bytes, component);
      row.push_back(group_thousands(predicted));
      row.push_back(ratio(bytes, predicted));
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::string> header = {"peak of each component", "bytes on the TPU"};
  if (prediction != nullptr) header.insert(header.end(), {"anatomy (CPU)", "ratio"});
  return table(header, rows);
}

std::string peak_text(const TpuEstimate& estimate, const TpuPrediction* prediction) {
  Rows rows = {{"tensors", group_thousands(estimate.peak.tensors)},
               {"temporaries of the running program", group_thousands(estimate.peak.temporaries)},
               {"code of the loaded programs", group_thousands(estimate.peak.code)},
               {"total", group_thousands(estimate.peak.total())}};
  std::string text = table({"memory at the peak", "bytes on the TPU"}, rows);
  if (!estimate.peak.program.empty())
    text += "The running program was " + estimate.peak.program + ". ";
  if (prediction != nullptr)
    text += "The anatomy predicts " + group_thousands(prediction->peak) + " bytes, without code.";
  return text + "\n";
}

std::string phases_text(const TpuEstimate& estimate) {
  Rows rows;
  for (const TpuPhase& phase : estimate.phases) {
    rows.push_back({phase.name, group_thousands(phase.peak.total()),
                    group_thousands(phase.peak.tensors), group_thousands(phase.peak.temporaries),
                    phase.peak.program});
  }
  return table({"peak in the phase", "total", "tensors", "temporaries", "program"}, rows);
}

std::string fit_text(const TpuEstimate& estimate) {
  if (estimate.memory == 0) return "The memory size of this device is unknown.\n";
  const std::string has =
      str("A device has ", group_thousands(estimate.memory), " bytes for programs. ");
  const std::int64_t left = estimate.memory - estimate.peak.total();
  if (left < 0)
    return str(has, "The step does not fit: ", human_bytes(-left), " more are needed.\n");
  if (!fits(estimate))
    return has + "The step does not fit: the compiler ran out of memory (see below).\n";
  if (!estimate.stopped.empty())
    return has + "The step fits so far, but the program ended early.\n";
  return str(has, "The step fits: ", human_bytes(left), " remain free.\n");
}

std::string notes(const TpuEstimate& estimate) {
  std::string text;
  if (!estimate.ahead_of_time) {
    text += "note: compiled for " + estimate.compiled_for +
            " by a compiler that is not for TPUs, so the figures are not those of a TPU\n";
  }
  if (!estimate.in_order) {
    text +=
        "note: operators were deferred, so phases, activations and other tensors are as of the "
        "time at which the operators ran\n";
  }
  if (estimate.reads > 0) {
    text += str("note: ", group_thousands(estimate.reads),
                " values were read back; they are 1 or true, because nothing is computed\n");
  }
  if (estimate.unpadded_bytes > 0) {
    text +=
        str("note: ", group_thousands(estimate.unpadded_bytes),
            " bytes belong to tensors that no program read; they are counted without padding\n");
  }
  if (estimate.mismatched_runs > 0) {
    text += str("note: in ", group_thousands(estimate.mismatched_runs),
                " runs the sum of the argument sizes differs from the compiler's figure\n");
  }
  return text;
}

std::string failures_text(const TpuEstimate& estimate) {
  std::string text;
  for (const TpuFailure& each : estimate.failed) {
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

bool fits(const TpuEstimate& estimate) {
  return (estimate.memory == 0 || estimate.peak.total() <= estimate.memory) &&
         std::none_of(estimate.failed.begin(), estimate.failed.end(), ran_out_of_memory);
}

TpuEstimate read_tpu_estimate(const std::string& json) {
  const Json all = Json::parse(json);
  TpuEstimate estimate{.topology = all.at("topology"),
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
                       .unpadded_bytes = all.at("unpadded_bytes"),
                       .mismatched_runs = all.at("mismatched_runs")};
  for (const Json& each : all.at("failed"))
    estimate.failed.push_back({.program = each.at("program"), .message = each.at("message")});
  return estimate;
}

TpuPrediction to_prediction(const Report& report) {
  return {.peak = report.memory.peak, .max_bytes = report.memory.max_bytes};
}

TpuPrediction read_prediction(const std::string& report_json) {
  const Json memory = Json::parse(report_json).at("memory");
  TpuPrediction prediction{.peak = memory.at("peak")};
  for (std::size_t i = 0; i < kComponents; ++i)
    prediction.max_bytes[i] =
        memory.at("max_bytes").at(std::string(name_of(static_cast<Component>(i))));
  return prediction;
}

std::string to_text(const TpuEstimate& estimate, const TpuPrediction* prediction) {
  std::string text = str("Predicted for tpu:", estimate.topology, ", one device of ",
                         estimate.devices, " (", estimate.compiled_for, "), ",
                         count_text(estimate.steps, "step"), ": compiled, not run\n\n");
  text += components_text(estimate, prediction) + "\n" + peak_text(estimate, prediction) + "\n" +
          phases_text(estimate) + "\n";
  text += str("Programs: ", group_thousands(estimate.programs), " compiled in ",
              fixed(estimate.compile_seconds, 1), " s, run ", group_thousands(estimate.runs),
              " times, ", estimate.failed.size(), " failed");
  if (estimate.steps > 2)
    text += str("; ", estimate.programs_after_second_step, " compiled after the second step");
  text += ".\n" + fit_text(estimate) + notes(estimate) + failures_text(estimate);
  if (!estimate.stopped.empty()) text += "\nThe program ended early: " + estimate.stopped + "\n";
  if (estimate.what_if) text += "\nWhat if: " + to_text(*estimate.what_if);
  return text;
}

std::string to_json(const TpuEstimate& estimate, const TpuPrediction* prediction) {
  Json components = Json::object(), phases = Json::object(), failed = Json::array();
  for (const Component component : kReportedComponents)
    components[std::string(name_of(component))] = bytes_of(estimate.components, component);
  for (const TpuPhase& phase : estimate.phases) phases[phase.name] = json_of(phase.peak);
  for (const TpuFailure& each : estimate.failed) {
    failed.push_back(
        {{"program", each.program}, {"module", each.module}, {"message", each.message}});
  }
  Json out = {{"device", "tpu:" + estimate.topology},
              {"compiled_for", estimate.compiled_for},
              {"ahead_of_time", estimate.ahead_of_time},
              {"devices", estimate.devices},
              {"memory", estimate.memory},
              {"fits", fits(estimate)},
              {"in_order", estimate.in_order},
              {"steps", estimate.steps},
              {"programs", estimate.programs},
              {"programs_after_second_step", estimate.programs_after_second_step},
              {"runs", estimate.runs},
              {"compile_seconds", estimate.compile_seconds},
              {"reads", estimate.reads},
              {"components", components},
              {"peak", json_of(estimate.peak)},
              {"after", json_of(estimate.now)},
              {"peak_in_phase", phases},
              {"failed", failed},
              {"unpadded_bytes", estimate.unpadded_bytes},
              {"mismatched_runs", estimate.mismatched_runs},
              {"stopped", estimate.stopped}};
  if (estimate.what_if) out["what_if"] = json_of(*estimate.what_if);
  if (prediction != nullptr) {
    Json max_bytes = Json::object();
    for (std::size_t i = 0; i < kComponents; ++i)
      max_bytes[std::string(name_of(static_cast<Component>(i)))] = prediction->max_bytes[i];
    out["anatomy"] = {{"device", "cpu"}, {"peak", prediction->peak}, {"max_bytes", max_bytes}};
  }
  return out.dump(2) + "\n";
}

void write_tpu_estimate(const std::filesystem::path& file, const TpuEstimate& estimate,
                        const TpuPrediction* prediction) {
  const std::string name = file.filename().string();
  write_file_atomically(file, ends_with(name, ".json")   ? to_json(estimate, prediction)
                              : ends_with(name, ".html") ? to_html(estimate, prediction)
                                                         : to_text(estimate, prediction));
}

}  // namespace hasten::anatomy
