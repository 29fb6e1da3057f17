#include "commands/observe_options.h"

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/tpu/machine/tpus.h"

namespace hasten {
namespace {

std::int64_t parse_steps(const std::string& word) {
  const auto steps = parse_number<std::int64_t>(word);
  if (steps && *steps >= 1) return *steps;
  throw ConfigError(
      "config.out-of-range",
      {.what = "--steps", .got = "'" + word + "'", .expected = "a whole number of at least 1"});
}

}  // namespace

ObserveOptions parse_observe(const std::vector<std::string>& words, const std::string& command) {
  ObserveOptions options;
  std::vector<std::string> names = {"--steps", "--json", "--html", "--output"};
  if (command == "estimate") names.insert(names.end(), {"--device", "--tpu"});
  std::size_t i = 0;
  for (; i < words.size() && starts_with(words[i], "-"); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto value = [&] {
      if (equals != std::string::npos) return words[i].substr(equals + 1);
      if (i + 1 < words.size()) return words[++i];
      throw ConfigError("config.missing-value", {.what = name + " has no value"});
    };
    if (words[i] == "--") {
      ++i;
      break;
    } else if (words[i] == "--help" || words[i] == "-h") {
      options.help = true;
    } else if (name == "--steps") {
      options.steps = parse_steps(value());
    } else if (words[i] == "--json") {
      options.output = "json";
    } else if (name == "--device" && command == "estimate") {
      options.device = value();
      if (options.device != "cpu") find_gpu(options.device);
    } else if (name == "--tpu" && command == "estimate") {
      options.device = std::string(kTpuDevice) + parse_tpu_topology(value()).name;
    } else if (name == "--html" || name == "--output") {
      options.output = value();
    } else {
      const auto near = nearest(name, names);
      throw ConfigError("config.unknown-key",
                        {.what = "unknown argument " + words[i],
                         .hint = near ? "did you mean " + *near + "?"
                                      : "options of the program follow its name"});
    }
  }
  options.program.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  if (options.program.empty() && !options.help) {
    throw ConfigError("config.missing",
                      {.what = "hasten " + command + ": no program to run",
                       .hint = "name one: hasten anatomy ./train, or hasten estimate -- ./train"});
  }
  return options;
}

std::string anatomy_help() {
  return "usage: hasten anatomy [--steps N] [--json | --output FILE] PROGRAM [ARGUMENT ...]\n"
         "       hasten estimate [...] -- PROGRAM [ARGUMENT ...]\n\n"
         "Runs an unchanged program that trains with a hasten::Accelerator for a few optimizer\n"
         "steps, reports where memory and operations went, and stops it. With estimate the\n"
         "program runs dry: nothing is computed, and no memory of the model's size is "
         "allocated.\n\n"
         "  --steps N       Stop after this many optimizer steps. [3]\n"
         "  --device NAME   estimate: predict for cpu, or for a GPU that need not be installed:\n"
         "                  cuda:v100-16gb ... [cpu]\n"
         "  --tpu TOPOLOGY  estimate: run on device tpu, where libtpu compiles each program:\n"
         "                  v5e:2x2, v6e:2x4 ...\n"
         "  --json          Print JSON on standard output instead of tables.\n"
         "  --output FILE   Write to a file: .json, .html, or text for other names.\n";
}

}  // namespace hasten
