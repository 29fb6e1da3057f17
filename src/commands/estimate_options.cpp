#include "commands/estimate_options.h"

#include <algorithm>

#include "commands/resolve_train.h"
#include "hasten/base/error.h"
#include "hasten/machine/gpus.h"
#include "hasten/tpu/machine/tpus.h"
#include "options/sources.h"

namespace hasten {
namespace {

// The options of `hasten estimate` that `hasten train` does not have.
struct OwnOptions {
  bool json = false, what_if = false, measure = false, devices = false;
  std::string batch, html, mode = "training", device = "cpu", tpu, precision = "fp32";
  std::int64_t steps = 2, seq = 512;
};

void describe(config::OptionTable& table, OwnOptions& options) {
  config::Describer d(table, options);
  d("batch", &OwnOptions::batch, "Set the number of rows in a batch.");
  d("seq", &OwnOptions::seq, "Set the number of tokens in a row.").at_least(1);
  d("precision", &OwnOptions::precision, "Compute in fp32 or bf16.");
  d("device", &OwnOptions::device, "Predict for cpu, or for a GPU that need not be installed.");
  d("devices", &OwnOptions::devices, "List these GPUs.");
  d("tpu", &OwnOptions::tpu, "Predict for a TPU that need not be installed.");
  d("mode", &OwnOptions::mode, "Predict training or inference.");
  d("steps", &OwnOptions::steps, "Predict this many steps.").at_least(1);
  d("measure", &OwnOptions::measure, "Run the steps and measure them instead of predicting them.");
  d("what_if", &OwnOptions::what_if, "Also report the peak with one thing changed.");
  d("html", &OwnOptions::html, "Also write an HTML page with charts and tables.");
  d("json", &OwnOptions::json, "Print everything as JSON, in bytes.");
}

config::Assignment flag(const std::string& key, const std::string& text) {
  return {.key = key,
          .value = text,
          .origin = {config::Origin::Source::flag, "--" + key},
          .places = {}};
}

[[noreturn]] void throw_bad_word(const config::Assignment& given, const char* expected) {
  throw ConfigError("config.bad-value", {.what = "--" + given.key,
                                         .got = "'" + config::to_text(given.value) + "'",
                                         .expected = expected});
}

// Returns the assignment to an option of `hasten train` that a short name stands for, or nothing if
// the name has no effect on it.
std::optional<config::Assignment> train_option(const config::Assignment& given) {
  const std::string word = config::to_text(given.value);
  if (given.key == "batch") return flag("per_device_train_batch_size", word);
  if (given.key != "precision" || word == "fp32" || word == "no") return std::nullopt;
  if (word != "bf16") throw_bad_word(given, "fp32 or bf16");
  return flag("bf16", "true");
}

// The device that --device or --tpu names, whichever comes last.
void set_device(std::string& device, const config::Assignment& given) {
  const std::string word = config::to_text(given.value);
  if (given.key == "tpu") device = std::string(kTpuDevice) + parse_tpu_topology(word).name;
  if (given.key != "device") return;
  device = word;
  if (device != "cpu") find_gpu(device);
}

// Removes the model from `words`: the first word that is neither an option nor the value of one.
// Returns an empty text if there is none.
std::string take_model(const config::OptionTable& table, std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("-")) {
      std::string model = std::move(words[i]);
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      return model;
    }
    if (words[i].find('=') != std::string::npos || i + 1 == words.size()) continue;
    const std::string name = words[i].substr(std::min<std::size_t>(2, words[i].size()));
    if (config::takes_word(table.find(name), words[i + 1])) ++i;
  }
  return "";
}

// The flags of one command line, for each of the two tables.
struct EstimateFlags {
  std::vector<config::Assignment> own, train;
};

// Reads the words by one table with the options of both commands.
EstimateFlags read_estimate_flags(config::OptionTable& own, std::vector<std::string> words) {
  TrainConfiguration unused;
  config::OptionTable both;
  describe(both, unused.options);
  describe(both, unused.arguments);
  both.options().insert(both.options().end(), own.options().begin(), own.options().end());
  const std::string model = take_model(both, words);
  EstimateFlags flags;
  if (!model.empty()) flags.train.push_back(flag("model", model));
  for (config::Assignment& given : config::read_flags(both, words)) {
    if (own.find(given.key) != nullptr) {
      if (const auto option = train_option(given)) flags.train.push_back(*option);
      flags.own.push_back(std::move(given));
      continue;
    }
    if (given.key == "optim" && config::to_text(given.value) == "adamw")
      given.value = std::string("adamw_torch_fused");
    flags.train.push_back(std::move(given));
  }
  return flags;
}

}  // namespace

EstimateConfiguration parse_estimate(const std::vector<std::string>& words,
                                     const config::Environment& environment) {
  EstimateConfiguration estimate;
  const auto asks_for_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  estimate.help = std::any_of(words.begin(), words.end(), asks_for_help);
  if (estimate.help) return estimate;

  OwnOptions own;
  config::OptionTable table;
  describe(table, own);
  const EstimateFlags flags = read_estimate_flags(table, words);
  std::vector<std::string> notices;
  config::resolve(table, {flags.own}, notices);
  for (const config::Assignment& given : flags.own) {
    set_device(estimate.device, given);
    if (given.key != "mode") continue;
    const auto mode = from_name<EstimateMode>(own.mode);
    if (!mode) throw_bad_word(given, "training or inference");
    estimate.mode = *mode;
  }
  estimate.json = own.json;
  estimate.html = own.html;
  estimate.what_if = own.what_if;
  estimate.measure = own.measure;
  estimate.steps = own.steps;
  estimate.devices = own.devices;
  if (estimate.devices) return estimate;
  if (estimate.measure && estimate.device != "cpu") {
    throw ConfigError("config.contradiction",
                      {.what = "--measure runs the steps on this machine's CPU",
                       .got = "--device " + estimate.device,
                       .hint = "remove one of them"});
  }
  // Flags of the user come later, so they win.
  const std::string length = std::to_string(own.seq);
  std::vector<config::Assignment> all = {flag("data", std::string(kDummyData)),
                                         flag("dummy_length", length), flag("max_length", length)};
  all.insert(all.end(), flags.train.begin(), flags.train.end());
  estimate.train = resolve_train(all, environment);
  return estimate;
}

std::string estimate_help() {
  return "usage: hasten estimate MODEL [--batch N] [--seq N] [--optim NAME] [--precision "
         "fp32|bf16]\n"
         "                       [--json] [--NAME VALUE ...]\n"
         "       hasten estimate [--steps N] [--json] -- PROGRAM [ARGUMENT ...]\n\n"
         "Predicts what a training step needs, without running it: memory at its peak by\n"
         "component and by layer, and operations by group. MODEL is a folder with config.json, a\n"
         "config.json, ORG/NAME in the Hugging Face cache, bert-base or bert-large. Nothing is\n"
         "computed, and no memory of the model's size is allocated.\n\n"
         "  --batch N       Set the number of rows in a batch. [8]\n"
         "  --seq N         Set the number of tokens in a row. [512]\n"
         "  --optim NAME    Select the optimizer: adamw or sgd. [adamw]\n"
         "  --precision P   Compute in fp32 or bf16. [fp32]\n"
         "  --device NAME   Predict for cpu, or for a GPU that need not be installed:\n"
         "                  cuda:v100-16gb, cuda:a100-80gb ... [cpu]\n"
         "  --devices       List these GPUs.\n"
         "  --tpu TOPOLOGY  Predict for a TPU that need not be installed: v5e:2x2, v6e:2x4,\n"
         "                  v5p:2x2x2 ... libtpu (python3 -m pip install libtpu) compiles the\n"
         "                  programs of the step and reports their memory.\n"
         "  --mode NAME     Predict training or inference. [training]\n"
         "  --steps N       Predict this many steps. [2]\n"
         "  --measure       Run the steps and measure them instead of predicting them.\n"
         "  --what_if       Also report the peak with one thing changed: precision, batch,\n"
         "                  length or optimizer.\n"
         "  --html FILE     Also write an HTML page with charts and tables.\n"
         "  --json          Print everything as JSON, in bytes.\n\n"
         "Every option of `hasten train` that changes a step is accepted too, for example\n"
         "--gradient_accumulation_steps 4.\n";
}

}  // namespace hasten
