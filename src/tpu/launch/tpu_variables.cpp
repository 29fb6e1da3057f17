#include "tpu/launch/tpu_variables.h"

#include <algorithm>
#include <map>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/variables.h"
#include "rendezvous/sockets.h"
#include "tpu/launch/tpu_slice.h"
#include "tpu/machine/chip_variables.h"

namespace hasten {
namespace {

// The chips' topology for each number of processes of one machine that torch_tpu supports.
using ChipTopologies = std::map<std::int64_t, const char*>;

const ChipTopologies& chip_topologies_of(const std::string& generation) {
  static const std::map<std::string, ChipTopologies> all = {
      {"v4", {{1, "1,1,1"}, {2, "1,2,1"}, {4, "2,2,1"}, {8, "2,2,2"}}},
      {"v5p", {{1, "1,1,1"}, {2, "1,2,1"}, {4, "2,2,1"}, {8, "2,2,2"}}},
      {"v5e", {{1, "1,1,1"}, {4, "2,2,1"}, {8, "2,4,1"}}},
      {"v6e", {{1, "1,1,1"}, {4, "2,2,1"}, {8, "2,4,1"}}},
      {"7x", {{2, "1,1,1,2"}, {4, "1,2,1,2"}, {8, "2,2,1,2"}}}};
  return all.at(generation);
}

[[noreturn]] void throw_processes(const std::string& got, const std::string& expected) {
  throw ConfigError("launch.tpu-processes",
                    {.what = "processes on this machine's TPUs",
                     .got = got,
                     .expected = expected,
                     .hint = "set --num_processes so that each process has its own chip"});
}

void check_enough(std::int64_t processes, std::size_t chips, const std::string& whose) {
  if (processes <= static_cast<std::int64_t>(chips)) return;
  throw_processes(str(processes, " processes for ", chips, chips == 1 ? " chip" : " chips", whose),
                  str("at most ", chips));
}

// Throws if the chips, which `variable` lists, contain one that is not installed.
void check_installed(const std::vector<std::string>& chips, const std::string& variable,
                     std::size_t installed) {
  for (const std::string& chip : chips) {
    const auto number = parse_number<std::size_t>(chip);
    if (number && *number < installed) continue;
    throw_environment({.what = variable,
                       .got = "chip " + chip,
                       .expected = str("a chip from 0 to ", installed - 1)});
  }
}

std::string chip_topology(std::int64_t processes, const std::vector<std::string>& installed) {
  if (installed.empty()) return str(processes, ",1,1");  // with a plugin, hasten does not use it
  const ChipTopologies& known = chip_topologies_of(installed.front());
  if (const auto found = known.find(processes); found != known.end()) return found->second;
  std::vector<std::string> possible;
  for (const auto& [count, text] : known) {
    if (count <= static_cast<std::int64_t>(installed.size())) possible.push_back(str(count));
  }
  throw_processes(str(processes, processes == 1 ? " process for " : " processes for ",
                      installed.size(), " chips of TPU ", installed.front()),
                  "one of " + join(possible, ", "));
}

// Returns addresses with ports that are free at this moment. The ports are not reserved, because
// libtpu may not be able to use a reserved one.
std::string free_addresses(std::int64_t processes) {
  std::vector<rendezvous::ReservedPort> ports;
  std::vector<std::string> addresses;
  for (std::int64_t local = 0; local < processes; ++local) {
    ports.emplace_back(/*loopback_only=*/true);
    addresses.push_back(str("localhost:", ports.back().number()));
  }
  return join(addresses, ",");
}

[[noreturn]] void throw_missing_variable(const std::string& what, const std::string& hint) {
  throw ConfigError("config.missing",
                    {.what = "TPUs on several machines need " + what, .hint = hint});
}

std::string addresses_on_several_machines(const Round& round,
                                          const config::Environment& environment) {
  const TpuSlice slice(round.num_machines, round.processes, environment);
  const auto hosts = slice.hosts();
  if (!hosts)
    throw_missing_variable(
        str(kTpuHosts, " with the names of the ", round.num_machines, " machines"),
        str("set it on each machine, in the order of the machine ranks, or set ", kTpuAddresses));
  const auto base_port = slice.base_port();
  if (!base_port)
    throw_environment({.what = kTpuBasePort,
                       .got = "'" + Variables(environment).text(kTpuBasePort) + "'",
                       .expected = str("a port, 1 to ", slice.highest_base_port())});
  return slice.addresses(*hosts, *base_port);
}

}  // namespace

TpuVariables::TpuVariables(const Round& round, const config::Environment& environment,
                           const std::vector<std::string>& installed) {
  if (const std::string missing = config::missing_tpu_reason(environment);
      installed.empty() && !missing.empty()) {
    throw IoError("device.tpu-missing", {.what = "processes on TPUs",
                                         .got = missing,
                                         .hint = "run on a TPU machine, or with --cpu"});
  }
  const Variables variables(environment);
  const bool several = round.num_machines > 1;
  const auto chips = config::tpu_chips(environment);
  const std::string chip_variable = config::chip_variable_of(environment);
  if (chips) check_enough(round.processes, chips->size(), " in " + chip_variable);
  if (!installed.empty())
    check_enough(round.processes, installed.size(), " of TPU " + installed.front());
  if (chips && !installed.empty()) check_installed(*chips, chip_variable, installed.size());
  for (std::int64_t local = 0; local < round.processes; ++local)
    chips_.push_back(chips ? (*chips)[static_cast<std::size_t>(local)] : str(local));

  common_.emplace_back("ACCELERATE_USE_TPU", "true");
  if (TpuSlice(round.num_machines, round.processes, environment).needs_topology())
    throw_missing_variable(kTpuTopology,
                           "set it to the topology of the whole slice, such as 4,4,1");
  if (!variables.has(kTpuTopology))
    common_.emplace_back(kTpuTopology, chip_topology(round.processes, installed));
  if (!variables.has(kTpuAddresses)) {
    common_.emplace_back(kTpuAddresses, several ? addresses_on_several_machines(round, environment)
                                                : free_addresses(round.processes));
  }
  if (!variables.has("TORCH_TPU_DEVICES_PER_HOST"))
    common_.emplace_back("TORCH_TPU_DEVICES_PER_HOST", str(round.processes));
}

VariableList TpuVariables::variables_of(std::int64_t local_rank) const {
  VariableList all = common_;
  const std::string& chip = chips_[static_cast<std::size_t>(local_rank)];
  for (const char* const name : config::kChipVariables) all.emplace_back(name, chip);
  return all;
}

VariableList bf16_variables(Precision precision, bool downcast_bf16) {
  if (precision != Precision::bf16) return {};
  if (!downcast_bf16) return {{"XLA_USE_BF16", "1"}};
  return {{"ACCELERATE_DOWNCAST_BF16", "true"}, {"XLA_DOWNCAST_BF16", "1"}};
}

TpuRankVariables::TpuRankVariables(const LaunchOptions& options, const Round& round) {
  if (!options.tpu) {
    if (!config::installed_tpus().empty()) common_variables_ = {{"ACCELERATE_USE_TPU", "false"}};
    return;
  }
  tpus_.emplace(round, config::whole_environment());
  common_variables_ = bf16_variables(options.mixed_precision, options.downcast_bf16);
  for (const std::string& variable : options.tpu_env) {
    const std::size_t equals = variable.find('=');
    common_variables_.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
}

VariableList TpuRankVariables::variables_of(std::int64_t local_rank) const {
  VariableList all = tpus_ ? tpus_->variables_of(local_rank) : VariableList{};
  all.insert(all.end(), common_variables_.begin(), common_variables_.end());
  return all;
}

std::string without_ports(const std::string& variable) {
  const std::string here = "localhost:";
  if (!starts_with(variable, str(kTpuAddresses, "=", here))) return variable;
  const auto count = std::count(variable.begin(), variable.end(), ':');
  const std::vector<std::string> hidden(static_cast<std::size_t>(count), here + "PORT");
  return str(kTpuAddresses, "=", join(hidden, ","));
}

}  // namespace hasten
