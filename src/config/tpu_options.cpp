#include "config/tpu_options.h"

#include <algorithm>

#include "config/messages.h"
#include "config/value.h"
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

// What says that processes run on TPUs, or that they do not.
struct Said {
  bool tpu = false;
  Origin origin;
  std::string name;
};

// ACCELERATE_USE_TPU in the launcher's own environment is as strong as a variable of ours.
Said said_by(const OptionTable& table, const O& options, const Environment& environment) {
  const Option& tpu = *table.find("tpu");
  const Option& type = *table.find("distributed_type");
  Said said{.tpu = options.tpu, .origin = tpu.origin, .name = "tpu"};
  const auto variable = environment.find("ACCELERATE_USE_TPU");
  const auto is_stronger = [&](Origin::Source source) { return source > said.origin.source; };
  if (was_said(type) && is_stronger(type.origin.source)) {
    said = {.tpu = options.distributed_type == DistributedType::XLA,
            .origin = type.origin,
            .name = "distributed_type"};
  }
  if (variable != environment.end() && parse_bool(variable->second).value_or(false) &&
      is_stronger(Origin::Source::environment)) {
    said = {.tpu = true,
            .origin = {Origin::Source::environment, variable->first},
            .name = variable->first};
  }
  return said;
}

std::string text_of(const Said& said) {
  if (said.name == "distributed_type") return located(said.origin, said.name) + " XLA";
  return said.origin.where == said.name ? said.name : located(said.origin, said.name);
}

// Of TPUs and the CPU, both asked for, the one that was said more strongly.
void settle_cpu(const OptionTable& table, O& options, Said& said) {
  const Option& cpu = *table.find("use_cpu");
  if (!said.tpu || !options.use_cpu) return;
  if (cpu.origin.source == said.origin.source)
    contradict(text_of(said) + " and " + located(cpu.origin, cpu.name) + " are both set",
               "leave one of them out");
  (cpu.origin.source > said.origin.source ? said.tpu : options.use_cpu) = false;
}

void refuse_gpus(const OptionTable& table, const O& options, const Said& said) {
  const Option& several = *table.find("multi_gpu");
  if (!several.is_default())
    contradict(text_of(said) + " and " + located(several.origin, several.name) + " are both set",
               "leave one of them out");
  const Option& ids = *table.find("gpu_ids");
  if (options.gpu_ids != "all")
    contradict(located(ids.origin, ids.name) + " names GPUs, and " + text_of(said) + " is set",
               "TPU_VISIBLE_DEVICES says which chips there are to share");
}

// Who says nothing of any device gets what the machine has, as an Accelerator does.
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
    throw ConfigError("config.bad-value", {.what = located(option.origin, option.name),
                                           .got = "'" + variable + "'",
                                           .expected = "NAME=value, several with commas"});
  }
}

void tell_of_no_use(const OptionTable& table, std::vector<std::string>& notices) {
  for (const char* name : {"downcast_bf16", "tpu_env"}) {
    const Option& option = *table.find(name);
    if (!option.is_default())
      notices.push_back(located(option.origin, option.name) + " is ignored: for TPUs");
  }
}

}  // namespace

void describe_tpus(Describer<O>& d) {
  d.group("TPUs");
  d("tpu", &O::tpu, "A TPU chip for each process; unset = where the machine has TPUs.");
  d("downcast_bf16", &O::downcast_bf16,
    "With mixed_precision bf16: float becomes bf16 and double float, not bf16 too.");
  d("tpu_env", &O::tpu_env, "Variables of each process, NAME=value with commas (--env).");
}

void settle_tpus(OptionTable& table, O& options, const Environment& environment,
                 std::vector<std::string>& notices) {
  std::erase(options.tpu_env, "");  // as accelerate config writes none
  Said said = said_by(table, options, environment);
  settle_cpu(table, options, said);
  Option& tpu = *table.find("tpu");
  if (said.tpu && said.name != "tpu") tpu.origin = {Origin::Source::derived, said.name};
  options.tpu = said.tpu;
  if (!said.tpu && said.origin.source == Origin::Source::default_value &&
      machine_says_so(table, options)) {
    options.tpu = true;
    tpu.origin = {Origin::Source::derived, "this machine"};
  }
  if (!options.tpu) return tell_of_no_use(table, notices);
  refuse_gpus(table, options, said);
  check_variables(table, options);
  if (options.downcast_bf16 && options.mixed_precision != LaunchPrecision::bf16) {
    const Option& option = *table.find("downcast_bf16");
    contradict(located(option.origin, option.name) + " without bf16", "--mixed_precision bf16");
  }
}

}  // namespace hasten::config
