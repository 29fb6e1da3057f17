#include "tpu/device/tpu_job.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tpu/launch/tpu_slice.h"
#include "tpu/machine/chip_variables.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten {
namespace {

std::string value_or_none(const Variables& variables, const char* name) {
  return variables.has(name) ? variables.text(name) : "no value";
}

std::string slice_addresses(const TpuSlice& slice, const Worker& worker,
                            const Variables& variables) {
  const auto hosts = slice.hosts();
  if (!hosts) {
    throw ConfigError(
        "device.tpu-job",
        {.what = kTpuHosts,
         .got = value_or_none(variables, kTpuHosts),
         .expected = str("the hosts of ", worker.num_machines,
                         " machines, separated by commas, in the order of their ranks")});
  }
  const auto base_port = slice.base_port();
  if (!base_port) {
    throw ConfigError("device.tpu-job",
                      {.what = kTpuBasePort,
                       .got = variables.text(kTpuBasePort),
                       .expected = str("a port, 1 to ", slice.highest_base_port(), ", for ",
                                       worker.local_world_size, " processes of a machine")});
  }
  return slice.addresses(*hosts, *base_port);
}

std::vector<Variable> slice_variables(const Worker& worker,
                                      const config::Environment& environment) {
  const Variables variables(environment);
  const TpuSlice slice(worker.num_machines, worker.local_world_size, environment);
  std::string addresses = variables.text(kTpuAddresses);
  if (addresses.empty()) addresses = slice_addresses(slice, worker, variables);
  if (slice.needs_topology()) {
    throw ConfigError("device.tpu-job", {.what = kTpuTopology,
                                         .got = "no value",
                                         .expected = str("the chips of all ", worker.num_machines,
                                                         " machines, such as 4,4,1 for a v5e-16")});
  }
  return {{kTpuAddresses, addresses},
          {"RANK", str(worker.rank)},
          {"LOCAL_RANK", str(worker.local_rank)},
          {"WORLD_SIZE", str(worker.world_size)},
          {"MASTER_ADDR", worker.master_addr},
          {"MASTER_PORT", str(worker.master_port)}};
}

// Returns the chip of this process: its entry in the list of this machine's chips, or its local
// rank if there is no list. Returns nullopt for a list of one chip, with which hasten launch starts
// each process.
std::optional<std::string> chip_of(const Worker& worker, const config::Environment& environment) {
  const auto chips = config::tpu_chips(environment);
  if (!chips) return str(worker.local_rank);
  if (chips->size() == 1) return std::nullopt;
  const auto listed = static_cast<std::int64_t>(chips->size());
  if (worker.local_world_size > listed) {
    throw ConfigError("device.tpu-job", {.what = config::chip_variable_of(environment),
                                         .got = str(listed, " chips for ", worker.local_world_size,
                                                    " processes of this machine"),
                                         .expected = "a chip for each process"});
  }
  return (*chips)[static_cast<std::size_t>(worker.local_rank)];
}

std::vector<Variable> separate_chip_variables(const Worker& worker,
                                              const config::Environment& environment) {
  std::vector<Variable> variables = {
      {"RANK", std::nullopt}, {"LOCAL_RANK", std::nullopt}, {"WORLD_SIZE", std::nullopt}};
  if (worker.local_world_size == 1) return variables;
  const auto set_if_missing = [&](const char* name, const std::string& value) {
    if (!Variables(environment).has(name)) variables.push_back({name, value});
  };
  if (const auto chip = chip_of(worker, environment))
    for (const char* const name : config::kChipVariables) variables.push_back({name, *chip});
  set_if_missing("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1");
  set_if_missing("TPU_PROCESS_BOUNDS", "1,1,1");
  return variables;
}

}  // namespace

std::vector<Variable> tpu_variables(const Worker& worker, TpuJob job,
                                    const config::Environment& environment) {
  return job == TpuJob::one_slice ? slice_variables(worker, environment)
                                  : separate_chip_variables(worker, environment);
}

}  // namespace hasten
