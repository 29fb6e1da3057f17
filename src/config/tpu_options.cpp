#include "config/tpu_options.h"

#include <algorithm>

#include "config/accelerate_names.h"
#include "config/messages.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/config/installed_gpus.h"
#include "hasten/config/installed_tpus.h"

namespace hasten::config {
namespace {

using O = LaunchOptions;

[[noreturn]] void contradict(const std::string& what, const std::string& hint) {
  throw ConfigError("config.contradiction", {.what = what, .hint = hint});
}

bool was_said(const Option& option) { return option.origin.source > Origin::Source::derived; }

// A source that says whether processes run on TPUs.
struct Said {
  bool tpu = false;
  Origin::Source source = Origin::Source::default_value;
  std::string name;
  std::string text;  // for messages
};

// Returns the strongest such source. ACCELERATE_USE_TPU in the launcher's own environment is as
// strong as a HASTEN_ variable.
Said said_by(const OptionTable& table, const O& options, const Environment& environment) {
  const Option& tpu = *table.find("tpu");
  const Option& type = *table.find("distributed_type");
  std::vector<Said> all;
  all.push_back({options.tpu, tpu.origin.source, tpu.name, located(tpu.origin, tpu.name)});
  if (was_said(type)) {
    all.push_back({options.distributed_type == DistributedType::XLA, type.origin.source, type.name,
                   located(type.origin, type.name) + " XLA"});
  }
  const char* const variable = "ACCELERATE_USE_TPU";
  if (environment_flag(environment, variable).value_or(false))
    all.push_back({true, Origin::Source::environment, variable, variable});
  return *std::max_element(all.begin(), all.end(), [](const Said& weaker, const Said& stronger) {
    return weaker.source < stronger.source;
  });
}

// If both TPUs and the CPU are requested, keeps the one from the stronger source.
void settle_cpu(const OptionTable& table, O& options, Said& said) {
  const Option& cpu = *table.find("use_cpu");
  if (!said.tpu || !options.use_cpu) return;
  if (cpu.origin.source == said.source)
    contradict(said.text + " and " + located(cpu.origin, cpu.name) + " are both set",
               "remove one of them");
  (cpu.origin.source > said.source ? said.tpu : options.use_cpu) = false;
}

void refuse_gpus(const OptionTable& table, const O& options, const Said& said) {
  const Option& several = *table.find("multi_gpu");
  if (!several.is_default())
    contradict(said.text + " and " + located(several.origin, several.name) + " are both set",
               "remove one of them");
  const Option& ids = *table.find("gpu_ids");
  if (options.gpu_ids != "all")
    contradict(located(ids.origin, ids.name) + " selects GPUs, but " + said.text + " is set",
               "select TPU chips with TPU_VISIBLE_DEVICES");
}

// True if no option names a device and the machine has TPUs but no GPUs: launch then uses the TPUs,
// as an Accelerator does.
bool machine_says_so(const OptionTable& table, const O& options) {
  const auto asks_for_gpus = [&] {
    return options.gpu_ids != "all" || !table.find("multi_gpu")->is_default() ||
           !installed_gpus().empty();
  };
  return !options.slurm && !options.use_cpu && !asks_for_gpus() && !installed_tpus().empty();
}

void check_variables(const OptionTable& table, const O& options) {
  for (const std::string& variable : options.tpu_env) {
    const auto equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool good =
        equals != std::string::npos && !name.empty() &&
        std::none_of(name.begin(), name.end(), [](unsigned char letter) { return letter <= ' '; });
    if (good) continue;
    const Option& option = *table.find("tpu_env");
    throw ConfigError("config.bad-value",
                      {.what = located(option.origin, option.name),
                       .got = "'" + variable + "'",
                       .expected = "NAME=value, or several separated by commas"});
  }
}

void tell_of_no_use(const OptionTable& table, std::vector<std::string>& notices) {
  for (const char* name : {"downcast_bf16", "tpu_env"}) {
    const Option& option = *table.find(name);
    if (!option.is_default())
      notices.push_back(located(option.origin, option.name) + " is ignored: " + kForTpus);
  }
}

}  // namespace

void describe_tpus(Describer<O>& d) {
  d.group("TPUs");
  d("tpu", &O::tpu,
    "Run each process on its own TPU chip. If no option selects a device, this is on if the "
    "machine has TPUs but no GPUs.");
  d("downcast_bf16", &O::downcast_bf16,
    "With mixed_precision bf16 on TPUs, compute float as bf16 and double as float instead of both "
    "as bf16.");
  d("tpu_env", &O::tpu_env,
    "Set these variables in each process on a TPU: NAME=value, separated by commas (--env).");
}

void settle_tpus(OptionTable& table, O& options, const Environment& environment,
                 std::vector<std::string>& notices) {
  std::erase(options.tpu_env, "");  // accelerate config writes an empty list this way
  Said said = said_by(table, options, environment);
  settle_cpu(table, options, said);
  Option& tpu = *table.find("tpu");
  if (said.tpu && said.name != "tpu") tpu.origin = {Origin::Source::derived, said.name};
  options.tpu = said.tpu;
  if (!said.tpu && said.source == Origin::Source::default_value &&
      machine_says_so(table, options)) {
    options.tpu = true;
    tpu.origin = {Origin::Source::derived, "this machine"};
  }
  if (!options.tpu) return tell_of_no_use(table, notices);
  refuse_gpus(table, options, said);
  check_variables(table, options);
  if (options.downcast_bf16 && options.mixed_precision != LaunchPrecision::bf16) {
    const Option& option = *table.find("downcast_bf16");
    contradict(located(option.origin, option.name) + " without bf16", "set --mixed_precision bf16");
  }
}

}  // namespace hasten::config
