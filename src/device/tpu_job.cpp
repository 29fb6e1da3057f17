#include "device/tpu_job.h"

#include <charconv>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kBasePort = 8070;  // torch_tpu's default for several machines

std::string value_of(const config::Environment& environment, const std::string& name,
                     const std::string& fallback = "") {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? fallback : found->second;
}

std::vector<std::string> hosts_of(const Worker& worker, const config::Environment& environment) {
  if (worker.num_machines == 1) return {"localhost"};
  const std::string named = value_of(environment, "TPU_WORKER_HOSTNAMES");
  const auto hosts = split(named, ',');
  if (static_cast<std::int64_t>(hosts.size()) == worker.num_machines) return hosts;
  throw ConfigError(
      "device.tpu-job",
      {.what = "TPU_WORKER_HOSTNAMES",
       .got = named.empty() ? "no value" : named,
       .expected = str("the hosts of ", worker.num_machines,
                       " machines, separated by commas, in the order of their ranks")});
}

// Returns the port of the machine's first process. Each of the others has the port after it.
std::int64_t base_port_of(const config::Environment& environment, std::int64_t processes) {
  const std::int64_t highest = 65536 - processes;
  const std::string text = value_of(environment, "TORCH_TPU_BASE_PORT", str(kBasePort));
  std::int64_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc() && end == text.data() + text.size() && port > 0 && port <= highest)
    return port;
  throw ConfigError("device.tpu-job", {.what = "TORCH_TPU_BASE_PORT",
                                       .got = text,
                                       .expected = str("a port, 1 to ", highest, ", for ",
                                                       processes, " processes of a machine")});
}

std::string addresses_of(const Worker& worker, const config::Environment& environment) {
  std::vector<std::string> addresses;
  const std::int64_t base = base_port_of(environment, worker.local_world_size);
  for (const std::string& host : hosts_of(worker, environment)) {
    for (std::int64_t local = 0; local < worker.local_world_size; ++local)
      addresses.push_back(str(host, ":", base + local));
  }
  return join(addresses, ",");
}

std::vector<Variable> slice_variables(const Worker& worker,
                                      const config::Environment& environment) {
  constexpr const char* kAddresses = "TORCH_TPU_SLICEBUILDER_ADDRESSES";
  std::string addresses = value_of(environment, kAddresses);
  if (addresses.empty()) addresses = addresses_of(worker, environment);
  if (worker.num_machines > 1 && value_of(environment, "TORCH_TPU_TOPOLOGY").empty()) {
    throw ConfigError("device.tpu-job", {.what = "TORCH_TPU_TOPOLOGY",
                                         .got = "no value",
                                         .expected = str("the chips of all ", worker.num_machines,
                                                         " machines, such as 4,4,1 for a v5e-16")});
  }
  return {{kAddresses, addresses},
          {"RANK", str(worker.rank)},
          {"LOCAL_RANK", str(worker.local_rank)},
          {"WORLD_SIZE", str(worker.world_size)},
          {"MASTER_ADDR", worker.master_addr},
          {"MASTER_PORT", str(worker.master_port)}};
}

std::vector<Variable> separate_chip_variables(const Worker& worker,
                                              const config::Environment& environment) {
  std::vector<Variable> variables = {
      {"RANK", std::nullopt}, {"LOCAL_RANK", std::nullopt}, {"WORLD_SIZE", std::nullopt}};
  if (worker.local_world_size == 1) return variables;
  const auto set_if_missing = [&](const char* name, const std::string& value) {
    if (value_of(environment, name).empty()) variables.push_back({name, value});
  };
  set_if_missing("TPU_VISIBLE_CHIPS", str(worker.local_rank));
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
