#include "commands/estimate_options.h"

#include "commands/observe_options.h"
#include "commands/predicted_device.h"
#include "commands/resolve.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "machine/this_gpu.h"
#include "options/help.h"

namespace hasten {
namespace {

enum class EstimatePrecision { fp32, bf16, fp16 };

}  // namespace

template <>
struct Names<EstimatePrecision> {
  static constexpr std::string_view text[] = {"fp32", "bf16", "fp16"};
};

namespace {

// The options that `hasten train` does not have or has under a longer name.
struct EstimateFlags {
  std::int64_t batch = TrainingArguments{}.per_device_train_batch_size;
  std::int64_t seq = 512;
  std::string optim = "adamw", device = "cpu";
  PredictedDeviceValues predicted;
  EstimatePrecision precision = EstimatePrecision::fp32;
};

void describe_estimate(config::OptionTable& table, EstimateConfiguration& run,
                       EstimateFlags& flags) {
  config::Describer d(table, flags);
  d("batch", &EstimateFlags::batch, "Set the number of rows in a batch.").at_least(1);
  d("seq", &EstimateFlags::seq,
    "Set the number of tokens in a row, or the dynamic sizes of an exported model's rows.")
      .at_least(1);
  d("optim", &EstimateFlags::optim, "Select the optimizer: adamw, or a name of `hasten train`.");
  d("precision", &EstimateFlags::precision, "Select the precision.").alias("no", "fp32");
  d("device", &EstimateFlags::device,
    "Predict for cpu, or for a GPU that need not be installed: cuda:v100-16gb, cuda:a100-80gb "
    "... With --measure, cuda is the GPU of this machine.");
  config::Describer own(table, run);
  own("devices", &EstimateConfiguration::devices, "List these GPUs.");
  flags.predicted.describe(table, &PredictedDevice::help_for_model);
  own("mode", &EstimateConfiguration::mode,
      "Select the part of a step to predict, or the generation of texts.");
  own("new_tokens", &EstimateConfiguration::new_tokens,
      "For --mode generate: generate this many tokens after prompts of --seq tokens.")
      .at_least(1);
  own("beams", &EstimateConfiguration::beams,
      "For --mode generate: search with this many beams for each prompt.")
      .at_least(1);
  own("steps", &EstimateConfiguration::steps,
      "Predict this many steps; a generation is one unless this is given.")
      .at_least(1);
  own("measure", &EstimateConfiguration::measure,
      "Run the steps and measure them instead of predicting them.");
  own("what_if", &EstimateConfiguration::what_if,
      "Also report the memory and the time of the step with one change each: every technique, "
      "half the batch, half the length. `hasten plan --what_if` prints the same table.");
  own("html", &EstimateConfiguration::html, "Also write an HTML page with charts and tables.");
  own("output", &EstimateConfiguration::output,
      "Also write to this file: .json, .html, .trace.json, .pickle (a memory snapshot for "
      "PyTorch's "
      "viewer), or text for other names.");
  own("json", &EstimateConfiguration::json, "Print everything as JSON, in bytes.");
}

// Translates a short name to an assignment of an option of `hasten train`. Returns nothing if the
// name has no effect on that command.
std::optional<config::Assignment> train_option(const std::string& name,
                                               const EstimateFlags& flags) {
  if (name == "batch") return config::as_flag("per_device_train_batch_size", str(flags.batch));
  if (name == "optim")
    return config::as_flag("optim", flags.optim == "adamw" ? "adamw_torch_fused" : flags.optim);
  if (name == "precision" && flags.precision == EstimatePrecision::bf16)
    return config::as_flag("bf16", "true");
  if (name == "precision" && flags.precision == EstimatePrecision::fp16)
    return config::as_flag("fp16", "true");
  return std::nullopt;
}

// Removes the model, which is the first operand, from `arguments` and returns it. Returns an empty
// text if there is none.
std::string take_model(const config::OptionTable& table, std::vector<std::string>& arguments) {
  const std::size_t at = config::operand_index(table, arguments);
  if (at == arguments.size()) return "";
  std::string model = std::move(arguments[at]);
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  return model;
}

// Reads the arguments with one table that has the options of both commands. The options of `own`
// come first.
std::vector<config::Assignment> read_estimate_flags(const config::OptionTable& own,
                                                    std::vector<std::string> arguments) {
  TrainConfiguration unused;
  config::OptionTable both = own;
  describe(both, unused.options);
  describe(both, unused.arguments);
  const std::string model = take_model(both, arguments);
  std::vector<config::Assignment> given = config::read_flags(both, arguments);
  if (!model.empty()) given.insert(given.begin(), config::as_flag("model", model));
  return given;
}

// Refuses options of a generation in other modes. For a generation, sets the default number of
// steps.
void check_mode(const config::OptionTable& table, EstimateConfiguration& estimate) {
  if (estimate.mode == EstimateMode::generation) {
    using Source = config::Origin::Source;
    if (table.find("steps")->origin.source == Source::default_value) estimate.steps = 1;
    return;
  }
  for (const char* name : {"new_tokens", "beams"}) {
    if (table.find(name)->is_default()) continue;
    config::throw_conflict(
        str("--", name, " is only for a generation: mode is ", name_of(estimate.mode)),
        "use --mode generate");
  }
}

void set_device_or_this_gpu(std::string& device, const config::Assignment& given) {
  if (given.key == "device" && config::to_text(given.value) == kThisGpu) {
    device = kThisGpu;
  } else {
    set_device(device, given);
  }
}

// A measurement runs on this machine, so its GPU must not be named. A prediction needs a name.
void check_measured_device(const EstimateConfiguration& estimate) {
  if (!estimate.measure && estimate.device == kThisGpu) find_gpu(estimate.device);  // throws
  if (!estimate.measure) return;
  if (estimate.device != "cpu" && estimate.device != kThisGpu) {
    config::throw_conflict(
        "--measure runs the steps on this machine's CPU, or with --device cuda on "
        "its GPU: got --device " +
            estimate.device,
        "remove one of them");
  }
  if (estimate.device == kThisGpu && estimate.compares_changes()) {
    config::throw_conflict(
        "--what_if and --html predict, for which a GPU needs a name: got --device "
        "cuda",
        "remove them, or predict for a GPU of hasten estimate --devices");
  }
}

// Refuses files that show single allocations if the estimate does not know them.
void check_output_format(const EstimateConfiguration& estimate) {
  const PredictedDevice* const kind = predicted_device_of(estimate.device);
  if (kind == nullptr || kind->reports_allocations()) return;
  for (const char* const ending : {".trace.json", ".pickle"}) {
    if (!ends_with(estimate.output, ending)) continue;
    config::throw_conflict(
        str("--output ", estimate.output, " shows single allocations, which an estimate for ",
            kind->title(), " does not know"),
        "use a name that ends in .json, .html or .txt");
  }
}

}  // namespace

EstimateConfiguration parse_estimate(
    const std::vector<std::string>& arguments, const config::Environment& environment,
    const std::function<void(config::OptionTable&)>& describe_more) {
  EstimateConfiguration estimate;
  estimate.help = config::asks_for_help(arguments);
  if (estimate.help) return estimate;

  EstimateFlags flags;
  config::OptionTable table;
  describe_estimate(table, estimate, flags);
  if (describe_more) describe_more(table);
  const std::vector<config::Assignment> given = read_estimate_flags(table, arguments);
  config::apply_flags(table, flags_of(table, given));
  if (estimate.devices) return estimate;
  check_mode(table, estimate);
  // The user's flags come later, so they win.
  const std::string length = str(flags.seq);
  std::vector<config::Assignment> train = {config::as_flag("data", std::string(kDummyData)),
                                           config::as_flag("dummy_length", length),
                                           config::as_flag("max_length", length)};
  for (const config::Assignment& each : given) {
    set_device_or_this_gpu(estimate.device, each);
    if (table.find(each.key) == nullptr) train.push_back(each);
    if (const auto option = train_option(each.key, flags)) train.push_back(*option);
  }
  check_measured_device(estimate);
  check_output_format(estimate);
  estimate.train = resolve_train(train, environment);
  if (!estimate.train.options.lora_adapter.empty()) {
    config::throw_conflict("--lora_adapter: a prediction reads no adapter",
                           "name its rank and its modules: --lora_r 8 --lora_target_modules ...");
  }
  return estimate;
}

std::string estimate_help(int width) {
  EstimateConfiguration run;
  EstimateFlags flags;
  config::OptionTable table;
  describe_estimate(table, run, flags);
  return "usage: hasten estimate MODEL [--NAME VALUE ...]\n"
         "       hasten estimate [--NAME VALUE ...] -- PROGRAM [ARGUMENT ...]\n\n"
         "Predicts what a training step needs, without running it: memory at its peak by\n"
         "component and by layer, and operations by group. MODEL is a folder with config.json, a\n"
         "config.json, ORG/NAME in the Hugging Face cache, a .pt2 file of torch.export, or a\n"
         "built-in name such as bert-base, gpt2 or llama-3.2-1b. Nothing is computed, and no\n"
         "memory of the model's size is allocated. `hasten estimate --help --` lists the options\n"
         "for a PROGRAM.\n\n" +
         config::help_text(table, width) +
         "\nEvery option of `hasten train` that changes a step is accepted too, for example\n"
         "--gradient_accumulation_steps 4.\n";
}

}  // namespace hasten
