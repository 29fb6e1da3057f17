#include "commands/estimate_options.h"

#include <algorithm>

#include "commands/count.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/config/tpus.h"
#include "hasten/machine/gpus.h"
#include "options/common_sources.h"

namespace hasten {
namespace {

// Translates the words of `hasten estimate` to those of `hasten train`.
class EstimateArguments {
 public:
  explicit EstimateArguments(EstimateConfiguration& estimate) : estimate_(estimate) {
    describe(table_, train_.options);
    describe(table_, train_.arguments);
  }

  void take(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      const std::string name = words[i].substr(0, equals);
      const auto value = [&]() -> std::string {
        if (equals != std::string::npos) return words[i].substr(equals + 1);
        if (i + 1 < words.size()) return words[++i];
        throw ConfigError("config.missing-value", {.what = name + " has no value"});
      };
      if (!starts_with(name, "-")) {
        // A word that is not the value of an option is the model.
        positional(words[i]);
      } else if (name == "--help" || name == "-h") {
        estimate_.help = true;
      } else if (name == "--devices") {
        estimate_.devices = true;
      } else if (name == "--json") {
        estimate_.json = true;
      } else if (name == "--html") {
        estimate_.html = value();
      } else if (name == "--what_if") {
        estimate_.what_if = true;
      } else if (name == "--measure") {
        estimate_.measure = true;
      } else if (name == "--steps") {
        estimate_.steps = config::parse_count(name, value());
      } else if (name == "--batch") {
        add({"--per_device_train_batch_size", value()});
      } else if (name == "--mode") {
        mode(value());
      } else if (name == "--device") {
        estimate_.device = value();
        if (estimate_.device != "cpu") find_gpu(estimate_.device);
      } else if (name == "--tpu") {
        estimate_.device = std::string(kTpuDevice) + parse_tpu_topology(value()).name;
      } else if (name == "--seq") {
        length_ = value();
      } else if (name == "--precision") {
        precision(value());
      } else if (name == "--optim") {
        const std::string optim = value();
        add({"--optim", optim == "adamw" ? "adamw_torch_fused" : optim});
      } else {
        words_.push_back(words[i]);
        after_option_ =
            equals == std::string::npos && i + 1 < words.size() && takes(name, words[i + 1]);
        continue;
      }
      after_option_ = false;
    }
  }

  std::vector<std::string> words() const {
    std::vector<std::string> all = {"--data", "dummy",        "--dummy_length",
                                    length_,  "--max_length", length_};
    if (!model_.empty()) all.insert(all.end(), {"--model", model_});
    all.insert(all.end(), words_.begin(), words_.end());
    return all;
  }

 private:
  // True if this flag of `hasten train` takes the word behind it.
  bool takes(const std::string& flag, const std::string& word) const {
    return config::takes_word(table_.find(flag.substr(std::min<std::size_t>(2, flag.size()))),
                              word);
  }
  void add(std::initializer_list<std::string> words) {
    words_.insert(words_.end(), words.begin(), words.end());
  }
  void positional(const std::string& word) {
    if (model_.empty() && !after_option_) {
      model_ = word;
    } else {
      words_.push_back(word);
    }
  }
  void precision(const std::string& word) {
    if (word == "bf16") return add({"--bf16"});
    if (word == "fp32" || word == "no") return;
    throw ConfigError("config.bad-value",
                      {.what = "--precision", .got = "'" + word + "'", .expected = "fp32 or bf16"});
  }
  void mode(const std::string& word) {
    if (const auto found = from_name<EstimateMode>(word)) {
      estimate_.mode = *found;
      return;
    }
    throw ConfigError(
        "config.bad-value",
        {.what = "--mode", .got = "'" + word + "'", .expected = "training or inference"});
  }
  EstimateConfiguration& estimate_;
  TrainConfiguration train_;  // what the table describes
  config::OptionTable table_;
  std::vector<std::string> words_;
  std::string model_, length_ = "512";
  bool after_option_ = false;
};

}  // namespace

EstimateConfiguration parse_estimate(int argc, const char* const* argv,
                                     const config::Environment& environment) {
  EstimateConfiguration estimate;
  EstimateArguments arguments(estimate);
  arguments.take(std::vector<std::string>(argv, argv + argc));
  if (estimate.help || estimate.devices) return estimate;
  if (estimate.measure && estimate.device != "cpu") {
    throw ConfigError("config.contradiction",
                      {.what = "--measure runs the steps on this machine's CPU",
                       .got = "--device " + estimate.device,
                       .hint = "remove one of them"});
  }
  const std::vector<std::string> words = arguments.words();
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  estimate.train = parse_train(static_cast<int>(pointers.size()), pointers.data(), environment);
  return estimate;
}

std::string estimate_help() {
  return "usage: hasten estimate MODEL [--batch N] [--seq N] [--optim NAME] [--precision "
         "fp32|bf16]\n"
         "                       [--json] [--NAME VALUE ...]\n"
         "       hasten estimate [--steps N] [--json] -- PROGRAM [ARGUMENT ...]\n\n"
         "Predicts what a training step needs, without running it: memory at its peak by\n"
         "component and by layer, and operations by group. MODEL is a folder with config.json, a\n"
         "config.json, bert-base or bert-large. Nothing is computed, and no memory of the model's\n"
         "size is allocated.\n\n"
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
