#include "tpu/commands/tpu_options.h"

#include <algorithm>

#include "accelerate_file/accelerate_names.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"
#include "options/sources.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten::config {
namespace {

bool is_explicit(const Option& option) { return option.origin.source > Origin::Source::derived; }

// A source that says whether processes run on TPUs.
struct TpuSetting {
  bool tpu = false;
  Origin::Source source = Origin::Source::default_value;
  std::string name;
  std::string text;  // for messages
};

// Returns the strongest source that says whether processes run on TPUs. ACCELERATE_USE_TPU in the
// launcher's own environment is as strong as a HASTEN_ variable.
TpuSetting strongest_tpu_setting(const OptionTable& table, const LaunchOptions& options,
                                 const Environment& environment) {
  const Option& tpu = *table.find("tpu");
  const Option& type = *table.find("distributed_type");
  std::vector<TpuSetting> all;
  all.push_back(
      {options.tpu, tpu.origin.source, tpu.name, key_with_location(tpu.origin, tpu.name)});
  if (is_explicit(type)) {
    all.push_back({options.distributed_type == DistributedType::XLA, type.origin.source, type.name,
                   key_with_location(type.origin, type.name) + " XLA"});
  }
  const char* const variable = "ACCELERATE_USE_TPU";
  if (environment_flag(environment, variable).value_or(false))
    all.push_back({true, Origin::Source::environment, variable, variable});
  return *std::max_element(all.begin(), all.end(),
                           [](const TpuSetting& weaker, const TpuSetting& stronger) {
                             return weaker.source < stronger.source;
                           });
}

// If both TPUs and the CPU are requested, keeps the one from the stronger source.
void resolve_cpu(const OptionTable& table, LaunchOptions& options, TpuSetting& setting) {
  const Option& cpu = *table.find("use_cpu");
  if (!setting.tpu || !options.use_cpu) return;
  if (cpu.origin.source == setting.source)
    throw_conflict(
        setting.text + " and " + key_with_location(cpu.origin, cpu.name) + " are both set",
        "remove one of them");
  (cpu.origin.source > setting.source ? setting.tpu : options.use_cpu) = false;
}

void reject_gpus(const OptionTable& table, const LaunchOptions& options,
                 const TpuSetting& setting) {
  const Option& multi_gpu = *table.find("multi_gpu");
  if (!multi_gpu.is_default())
    throw_conflict(setting.text + " and " + key_with_location(multi_gpu.origin, multi_gpu.name) +
                       " are both set",
                   "remove one of them");
  const Option& ids = *table.find("gpu_ids");
  if (options.gpu_ids != "all")
    throw_conflict(
        key_with_location(ids.origin, ids.name) + " selects GPUs, but " + setting.text + " is set",
        "select TPU chips with TPU_VISIBLE_DEVICES");
}

// True if no option names a device and the machine has TPUs but no GPUs. Launch then uses the TPUs,
// as an Accelerator does.
bool machine_has_only_tpus(const OptionTable& table, const LaunchOptions& options) {
  const auto asks_for_gpus = [&] {
    return options.gpu_ids != "all" || !table.find("multi_gpu")->is_default() ||
           !installed_gpus().empty();
  };
  return !options.slurm && !options.use_cpu && !asks_for_gpus() && !installed_tpus().empty();
}

void check_variables(const OptionTable& table, const LaunchOptions& options) {
  for (const std::string& variable : options.tpu_env) {
    const auto equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool good =
        equals != std::string::npos && !name.empty() &&
        std::none_of(name.begin(), name.end(), [](unsigned char letter) { return letter <= ' '; });
    if (good) continue;
    const Option& option = *table.find("tpu_env");
    throw ConfigError("config.bad-value",
                      {.what = key_with_location(option.origin, option.name),
                       .got = "'" + variable + "'",
                       .expected = "NAME=value, or several separated by commas"});
  }
}

void report_unused_tpu_options(const OptionTable& table, std::vector<std::string>& notices) {
  for (const char* name : {"downcast_bf16", "tpu_env"}) {
    const Option& option = *table.find(name);
    if (!option.is_default())
      notices.push_back(key_with_location(option.origin, option.name) +
                        " is ignored: " + kTpuReason);
  }
}

}  // namespace

void describe_tpus(Describer<LaunchOptions>& d) {
  d.group("TPUs");
  d("tpu", &LaunchOptions::tpu,
    "Run each process on its own TPU chip. If no option selects a device, this is on if the "
    "machine has TPUs but no GPUs.");
  d("downcast_bf16", &LaunchOptions::downcast_bf16,
    "With mixed_precision bf16 on TPUs, compute float as bf16 and double as float instead of both "
    "as bf16.");
  d("tpu_env", &LaunchOptions::tpu_env,
    "Set these variables in each process on a TPU: NAME=value, separated by commas (--env).");
}

void resolve_tpu_options(OptionTable& table, LaunchOptions& options, const Environment& environment,
                         std::vector<std::string>& notices) {
  std::erase(options.tpu_env, "");  // accelerate config writes an empty list this way
  TpuSetting setting = strongest_tpu_setting(table, options, environment);
  resolve_cpu(table, options, setting);
  Option& tpu = *table.find("tpu");
  if (setting.tpu && setting.name != "tpu") tpu.origin = {Origin::Source::derived, setting.name};
  options.tpu = setting.tpu;
  if (!setting.tpu && setting.source == Origin::Source::default_value &&
      machine_has_only_tpus(table, options)) {
    options.tpu = true;
    tpu.origin = {Origin::Source::derived, "this machine"};
  }
  if (!options.tpu) return report_unused_tpu_options(table, notices);
  reject_gpus(table, options, setting);
  check_variables(table, options);
  if (options.downcast_bf16 && options.mixed_precision != Precision::bf16) {
    const Option& option = *table.find("downcast_bf16");
    throw_conflict(key_with_location(option.origin, option.name) + " without bf16",
                   "set --mixed_precision bf16");
  }
}

}  // namespace hasten::config
