#include "commands/observe_options.h"

#include "commands/predicted_device.h"
#include "hasten/base/error.h"
#include "hasten/machine/gpus.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The flags that set ObserveOptions::output or ObserveOptions::device together; the last one
// counts.
struct ObserveFlags {
  bool json = false;
  std::string output, html, device = "cpu";
  PredictedDeviceValues predicted;
};

void describe_observe(config::OptionTable& table, ObserveOptions& options, ObserveFlags& flags,
                      const std::string& command) {
  config::Describer own(table, options);
  own("steps", &ObserveOptions::steps, "Stop after this many optimizer steps.").at_least(1);
  config::Describer d(table, flags);
  if (command == "estimate") {
    d("device", &ObserveFlags::device,
      "Predict for cpu, or for a GPU that need not be installed: cuda:v100-16gb ...");
    flags.predicted.describe(table, &PredictedDevice::help_for_program);
  }
  d("json", &ObserveFlags::json, "Print JSON on standard output instead of tables.");
  d("output", &ObserveFlags::output,
    "Write to this file: .json, .html, .trace.json, .pickle (a memory snapshot for PyTorch's "
    "viewer), or text for other names.");
  d("html", &ObserveFlags::html, "The same as --output.");
}

void set_output(std::string& output, const config::Assignment& given, const ObserveFlags& flags) {
  if (given.key == "json") output = flags.json ? "json" : "text";
  if (given.key == "output" || given.key == "html") output = config::to_text(given.value);
}

}  // namespace

void set_device(std::string& device, const config::Assignment& given) {
  const std::string name = config::to_text(given.value);
  if (const PredictedDevice* const kind = predicted_device_of_option(given.key))
    device = kind->parse(name);
  if (given.key != "device") return;
  device = name;
  if (device != "cpu") find_gpu(device);
}

ObserveOptions parse_observe(const std::vector<std::string>& arguments,
                             const std::string& command) {
  ObserveOptions options;
  ObserveFlags flags;
  config::OptionTable table;
  describe_observe(table, options, flags, command);
  const auto program =
      arguments.begin() + static_cast<std::ptrdiff_t>(config::operand_index(table, arguments));
  options.program.assign(program, arguments.end());
  std::vector<std::string> own(arguments.begin(), program);
  options.help = config::asks_for_help(own);
  if (options.help) return options;
  std::erase(own, "--");
  const std::vector<config::Assignment> given = config::read_flags(table, own);
  config::apply_flags(table, given);
  for (const config::Assignment& each : given) {
    set_output(options.output, each, flags);
    set_device(options.device, each);
  }
  if (!options.program.empty()) return options;
  throw ConfigError("config.missing",
                    {.what = "hasten " + command + ": no program to run",
                     .hint = "name one: hasten anatomy ./train, or hasten estimate -- ./train"});
}

std::string observe_help(const std::string& command, int width) {
  ObserveOptions options;
  ObserveFlags flags;
  config::OptionTable table;
  describe_observe(table, options, flags, command);
  const std::string usage =
      command == "estimate"
          ? "usage: hasten estimate [--NAME VALUE ...] -- PROGRAM [ARGUMENT ...]\n\n"
            "Makes a dry run of a few optimizer steps of an unchanged program that trains with a\n"
            "hasten::Accelerator, reports where memory and operations would go, and stops it.\n"
            "Nothing is computed, and no memory of the model's size is allocated.\n\n"
          : "usage: hasten anatomy [--NAME VALUE ...] PROGRAM [ARGUMENT ...]\n\n"
            "Runs an unchanged program that trains with a hasten::Accelerator for a few optimizer\n"
            "steps, reports where memory and operations went, and stops it. `hasten estimate --\n"
            "PROGRAM` predicts the same without computing anything.\n\n";
  return usage + config::help_text(table, width);
}

}  // namespace hasten
