// Writes the report as tables for a terminal.
#include "hasten/anatomy/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "anatomy/comparison_text.h"
#include "base/count_text.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string percent_text(double part, double whole) {
  return whole > 0 ? fixed(100 * part / whole, part / whole < 0.001 ? 3 : 1) + " %" : "-";
}

std::string per_parameter(std::int64_t bytes, std::int64_t parameters) {
  return parameters > 0
             ? fixed(static_cast<double>(bytes) / static_cast<double>(parameters), 2) + " B"
             : "-";
}

std::string with_unit_prefix(double value, const char* unit) {
  constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P"};
  int step = 0;
  while (value >= 1000 && step < 5) {
    value /= 1000;
    ++step;
  }
  return str(significant(value, 3), " ", kPrefix[step], unit);
}

// A rate of samples or tokens.
std::string per_second(double number, const char* what) {
  return str(number >= 1000 ? group_thousands(std::llround(number)) : significant(number, 3), " ",
             what, "/s");
}

const char* in_phase(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "in the forward pass";
    case Phase::backward:
      return "in the backward pass";
    case Phase::optimizer:
      return "in the optimizer step";
    case Phase::other:
      break;
  }
  return "outside of the phases of a step";
}

std::string memory_text(const Report& report) {
  const Memory& memory = report.memory;
  Rows rows;
  for (std::size_t i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    const std::int64_t bytes = memory.at_peak[i];
    const bool by_parameter = i <= static_cast<std::size_t>(Component::gradients);
    rows.push_back({std::string(name_of(component)), group_thousands(bytes),
                    percent_text(static_cast<double>(bytes), static_cast<double>(memory.peak)),
                    by_parameter ? per_parameter(bytes, memory.parameters) : "",
                    textbook(memory, component).text, group_thousands(memory.max_bytes[i])});
  }
  rows.push_back({"peak", group_thousands(memory.peak), "100.0 %",
                  per_parameter(memory.peak, memory.parameters), "", ""});
  return table({"memory at the peak", "bytes", "share", "per parameter", "textbook", "own peak"},
               rows) +
         str("The peak was ", in_phase(memory.peak_phase),
             memory.peak_operation.empty() ? "" : ", in " + memory.peak_operation,
             memory.peak_module.empty() ? "" : " of " + memory.peak_module,
             ". Memory before the first step: ", human_bytes(memory.before),
             "; after the last: ", human_bytes(memory.after), ".\n");
}

// Returns the table of the memory that the GPU needs, and whether it fits.
std::string gpu_text(const Memory& memory) {
  const GpuMemory& gpu = *memory.gpu;
  const std::int64_t needed = needed_bytes(memory);
  const auto row = [&](const char* what, std::int64_t bytes) {
    return std::vector<std::string>{
        what, group_thousands(bytes),
        percent_text(static_cast<double>(bytes), static_cast<double>(needed))};
  };
  Rows rows = {row("tensors at the peak", memory.peak),
               row("cached by the allocator at the peak", gpu.reserved_at_peak - memory.peak),
               row("additionally cached at other times", gpu.reserved - gpu.reserved_at_peak)};
  if (gpu.context > 0) rows.push_back(row("context, kernels, libraries", gpu.context));
  rows.push_back(row("total", needed));
  std::string text = table({"memory of the GPU", "bytes", "share"}, rows);
  if (gpu.capacity == 0) return text;
  const std::string subject =
      str(gpu.title.empty() ? "GPU" : gpu.title, " (", human_bytes(gpu.capacity), "): ");
  return text + (gpu.missing > 0 ? str("The step does not fit the ", subject,
                                       human_bytes(gpu.missing), " more are needed.\n")
                                 : str("The step fits the ", subject,
                                       human_bytes(gpu.capacity - needed), " remain free.\n"));
}

// "activations 2.1 GiB, model_weights 1.2 GiB": the largest first.
std::string largest_components(const ComponentBytes& bytes) {
  std::vector<std::pair<std::int64_t, Component>> sorted;
  for (std::size_t i = 0; i < kComponents; ++i)
    if (bytes[i] > 0) sorted.emplace_back(bytes[i], static_cast<Component>(i));
  std::sort(sorted.rbegin(), sorted.rend());
  std::vector<std::string> words;
  for (const auto& [size, component] : sorted) {
    if (words.size() == 3) break;
    words.push_back(str(name_of(component), " ", human_bytes(size)));
  }
  return join(words, ", ");
}

// "bert.embeddings 90 MiB, ...": the layers that use most memory.
std::string largest_layers(const std::vector<ModuleMemory>& modules) {
  std::vector<std::string> words;
  for (const ModuleMemory& each : modules) {
    if (words.size() == 3) break;
    if (!each.module.empty())
      words.push_back(str(each.module, " ", human_bytes(total(each.at_peak))));
  }
  return join(words, ", ");
}

std::string modules_text(const Memory& memory) {
  Rows rows;
  for (const ModuleMemory& each : memory.modules) {
    if (rows.size() == 12) break;
    const auto cell = [&](Component component) {
      return group_thousands(bytes_of(each.at_peak, component));
    };
    rows.push_back({each.module.empty() ? "(no layer)" : each.module,
                    cell(Component::model_weights), cell(Component::optimizer_states),
                    cell(Component::gradients), cell(Component::activations),
                    group_thousands(total(each.at_peak))});
  }
  std::string text =
      table({"layer", "weights", "optimizer", "gradients", "activations", "total"}, rows);
  if (memory.modules.size() > rows.size())
    text += str("... and ", memory.modules.size() - rows.size(), " more layers\n");
  return text;
}

// Rows of a prediction (`dry`) have no times.
std::vector<std::string> operation_row(const std::string& name, const OperationTotal& each,
                                       const OperationTotal& all, bool dry) {
  const auto bytes = static_cast<double>(each.bytes_read + each.bytes_written);
  std::vector<std::string> row = {name,
                                  group_thousands(each.count),
                                  with_unit_prefix(each.flops, "FLOP"),
                                  percent_text(each.flops, all.flops),
                                  human_bytes(each.bytes_read),
                                  human_bytes(each.bytes_written),
                                  bytes > 0 ? fixed(each.flops / bytes, 2) : "-"};
  if (!dry) {
    row.push_back(fixed(1000 * each.seconds, 1) + " ms");
    row.push_back(percent_text(each.seconds, all.seconds));
  }
  return row;
}

std::vector<std::string> operation_header(const char* first, bool dry) {
  std::vector<std::string> header = {first, "count", "FLOP", "share", "read", "written", "FLOP/B"};
  if (!dry) header.insert(header.end(), {"time", "share"});
  return header;
}

OperationTotal grand_total(const Report& report) {
  OperationTotal all;
  for (std::size_t i = 0; i < kGroups; ++i) all += total_of(report, static_cast<OperationGroup>(i));
  return all;
}

std::string roof_text(double flops_per_second, const char* type) {
  return flops_per_second > 0 ? str(with_unit_prefix(flops_per_second, "FLOP/s"), ' ', type, ", ")
                              : "";
}

// Names the kernels in which attention ran, or nothing if it ran in none of them.
std::string attention_text(const Report& report) {
  std::vector<std::string> kernels;
  for (const auto& [name, calls] : attention_kernels(report))
    kernels.push_back(str(name, " (", count_text(calls, "call"), ")"));
  return kernels.empty() ? "" : "Attention kernels: " + join(kernels, ", ") + ".\n";
}

std::string operations_text(const Report& report) {
  const OperationTotal all = grand_total(report);
  Rows groups, phases;
  for (std::size_t i = 0; i < kGroups; ++i) {
    const auto group = static_cast<OperationGroup>(i);
    groups.push_back(operation_row(
        group == OperationGroup::none ? "views, allocations" : std::string(name_of(group)),
        total_of(report, group), all, report.dry));
  }
  for (std::size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    phases.push_back(
        operation_row(std::string(name_of(phase)), total_of(report, phase), all, report.dry));
  }
  std::string text = table(operation_header("operations", report.dry), groups) + "\n" +
                     table(operation_header("phase", report.dry), phases);
  if (report.roofs.flops_per_second > 0) {
    text +=
        str(report.roofs.source.empty() ? "Roofline of this machine: "
                                        : str("Roofline, from ", report.roofs.source, ": "),
            with_unit_prefix(report.roofs.flops_per_second, "FLOP/s"), " float, ",
            roof_text(report.roofs.tf32_flops_per_second, "tf32"),
            roof_text(report.half_is_float16 ? 0 : report.roofs.bf16_flops_per_second, "bf16"),
            roof_text(report.half_is_float16 ? report.roofs.fp16_flops_per_second : 0, "fp16"),
            human_bytes(static_cast<std::int64_t>(report.roofs.bytes_per_second)),
            "/s; ridge point at ",
            fixed(report.roofs.flops_per_second / report.roofs.bytes_per_second, 1), " FLOP/B.\n");
  }
  if (const double times = backward_to_forward_ratio(report); times > 0)
    text +=
        str("The backward pass takes ", fixed(times, 2), " times the FLOP of the forward pass.\n");
  return text + attention_text(report);
}

std::string by_name_text(const Report& report) {
  std::vector<std::pair<std::string, OperationTotal>> names;
  for (const Operation& each : report.operations) {
    auto found = std::find_if(names.begin(), names.end(),
                              [&](const auto& known) { return known.first == each.name; });
    if (found == names.end()) found = names.insert(names.end(), {each.name, {}});
    found->second += each;
  }
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return report.dry ? a.second.flops > b.second.flops : a.second.seconds > b.second.seconds;
  });
  const OperationTotal all = grand_total(report);
  Rows rows;
  for (const auto& [name, total] : names) {
    if (rows.size() == 12) break;
    rows.push_back(operation_row(name, total, all, report.dry));
  }
  return table(operation_header("operator", report.dry), rows);
}

std::string expected_text(const StepTime& expected, double rows) {
  const auto milliseconds = [](double seconds) { return three_digits(1000 * seconds); };
  return str("\nExpected for a step: ", milliseconds(expected.seconds), " ms (",
             milliseconds(expected.seconds * (1 - expected.uncertainty)), " to ",
             milliseconds(expected.seconds * (1 + expected.uncertainty)), " ms), ",
             per_second(rows / expected.seconds, "samples"), "; the GPU is busy for ",
             milliseconds(expected.kernels), " ms",
             expected.host > 0 ? str(", the host for ", milliseconds(expected.host), " ms")
                               : "; the host only starts a CUDA graph");
}

std::string headline(const Report& report) {
  std::string text = str(report.dry ? "Predicted" : "Measured", " on ", report.device, ": ",
                         count_text(report.steps, "step"), ", ",
                         group_thousands(report.memory.parameters), " parameters");
  if (!report.dry && report.seconds > 0 && report.samples > 0) {
    text += ", " + per_second(static_cast<double>(report.samples) / report.seconds, "samples");
    if (report.tokens > 0)
      text += ", " + per_second(static_cast<double>(report.tokens) / report.seconds, "tokens");
    if (const double reached = model_flops_utilization(report); reached > 0)
      text += str(", MFU ", fixed(100 * reached, 1), " %");
  }
  if (const double lower_bound = min_step_seconds(report); report.dry && lower_bound > 0) {
    const double rows = static_cast<double>(report.samples) /
                        static_cast<double>(std::max<std::int64_t>(1, report.steps));
    text += str(
        "\nLower bound for a step (every operator at its roof): ", three_digits(1000 * lower_bound),
        " ms, ", per_second(rows / lower_bound, "samples"));
    if (const auto expected = expected_step_time(report)) text += expected_text(*expected, rows);
  }
  return text + "\n";
}

}  // namespace

std::string to_text(const OutOfMemory& failure) {
  const std::string layers = largest_layers(failure.modules);
  return str("memory runs out ", in_phase(failure.phase),
             failure.operation.empty() ? "" : ", in " + failure.operation,
             failure.module.empty() ? "" : " of " + failure.module, ": it requests ",
             human_bytes(failure.requested), " for ", name_of(failure.component), " while ",
             human_bytes(total(failure.allocated)), " are allocated (",
             largest_components(failure.allocated), ")",
             layers.empty() ? "" : "; the layers that use most memory are " + layers);
}

std::string to_text(const Report& report) {
  std::string text = headline(report) + "\n";
  if (report.memory.known) {
    text += memory_text(report) + "\n";
    if (report.memory.gpu) text += gpu_text(report.memory) + "\n";
    if (report.memory.out_of_memory)
      text += str("Out of memory: ", to_text(*report.memory.out_of_memory), ".\n\n");
    text += modules_text(report.memory);
  }
  if (!report.operations.empty()) {
    text += "\n" + operations_text(report) + "\n" + by_name_text(report);
    if (!report.without_formula.empty())
      text += "Not counted in FLOP (no formula): " + join(report.without_formula, ", ") + "\n";
  }
  if (report.what_if) text += "\nWhat if: " + to_text(*report.what_if);
  for (const std::string& note : report.notes) text += "Note: " + note + "\n";
  return text;
}

}  // namespace hasten::anatomy
