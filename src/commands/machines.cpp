#include "hasten/options/launch_options.h"

#include "base/count_text.h"
#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/endpoint.h"
#include "options/sources.h"

namespace hasten {
namespace {

using config::throw_conflict;
using config::throw_missing;

std::int64_t parse_machine_count(const std::string& text, const std::string& part) {
  const auto count = parse_number<std::int64_t>(part);
  if (!count || *count < 1 || *count > 4096) {
    throw ConfigError("config.bad-value",
                      {.what = "nnodes",
                       .got = "'" + text + "'",
                       .expected = "a number such as 2, or a range such as 2:4"});
  }
  return *count;
}

void set_counts(Machines& machines, const LaunchOptions& options) {
  machines.min_count = machines.max_count = options.num_machines.value_or(1);
  if (options.nnodes.empty()) return;
  const auto parts = split(options.nnodes, ':');
  machines.min_count = parse_machine_count(options.nnodes, parts.front());
  machines.max_count = parse_machine_count(options.nnodes, parts.back());
  if (parts.size() > 2 || machines.min_count > machines.max_count) {
    throw ConfigError("config.bad-value",
                      {.what = "nnodes",
                       .got = "'" + options.nnodes + "'",
                       .expected = "LEAST:MOST, where LEAST is not above MOST"});
  }
  if (options.num_machines &&
      (*options.num_machines != machines.max_count || machines.min_count != machines.max_count))
    throw_conflict(
        str("num_machines is ", *options.num_machines, ", but nnodes is ", options.nnodes),
        "remove one of them");
}

void check_standalone(const Machines& machines, const LaunchOptions& options) {
  if (options.standalone && machines.has_several())
    throw_conflict(str("standalone with ", machines.max_count, " machines"), "remove one of them");
}

void set_endpoint(Machines& machines, const LaunchOptions& options) {
  machines.host = options.main_process_ip;
  machines.port = static_cast<int>(
      options.main_process_port.value_or(machines.has_several() ? kRendezvousPort : 0));
  if (options.rdzv_endpoint.empty()) return;
  const auto endpoint = parse_endpoint(options.rdzv_endpoint, machines.port);
  if (!options.main_process_ip.empty() && options.main_process_ip != endpoint.host)
    throw_conflict("main_process_ip is " + options.main_process_ip + ", but rdzv_endpoint is " +
                       options.rdzv_endpoint,
                   "remove one of them");
  if (options.main_process_port && *options.main_process_port != endpoint.port)
    throw_conflict(str("main_process_port is ", *options.main_process_port,
                       ", but rdzv_endpoint is ", options.rdzv_endpoint),
                   "remove one of them");
  machines.host = endpoint.host;
  machines.port = endpoint.port;
}

// Throws ConfigError for options that contradict --slurm. Its script has a fixed number of
// machines, and sets their ranks and their rendezvous.
void check_script(const Machines& machines, const LaunchOptions& options) {
  if (machines.min_count != machines.max_count)
    throw_conflict("slurm with nnodes " + options.nnodes,
                   "set a fixed number, because Slurm gives a job all of its machines at once");
  const bool has_place = options.machine_rank.value_or(0) != 0 ||
                         !options.main_process_ip.empty() || options.main_process_port ||
                         !options.rdzv_endpoint.empty();
  if (has_place)
    throw_conflict("slurm with machine_rank, main_process_ip, main_process_port or rdzv_endpoint",
                   "remove these options, because the script sets them");
}

void check_rank(const Machines& machines, const LaunchOptions& options) {
  const bool by_endpoint =
      !options.rdzv_endpoint.empty() || options.rdzv_backend == RendezvousBackend::c10d;
  if (options.machine_rank && *options.machine_rank >= machines.max_count)
    throw_conflict(str("machine_rank is ", *options.machine_rank, " with ",
                       count_text(machines.max_count, "machine")),
                   str("use a rank from 0 to ", machines.max_count - 1));
  if (options.machine_rank && machines.min_count != machines.max_count && *options.machine_rank > 0)
    throw_conflict("machine_rank with a range of machines",
                   "remove machine_rank, because ranks are assigned");
  if (machines.min_count != machines.max_count &&
      options.rdzv_backend == RendezvousBackend::static_)
    throw_conflict("rdzv_backend is static, but nnodes is the range " + options.nnodes,
                   "use --rdzv_backend c10d");
  if (!machines.has_several()) return;
  if (machines.host.empty())
    throw_missing(
        "the address at which the machines meet is missing",
        "set --main_process_ip to the address of machine 0, or --rdzv_endpoint to HOST:PORT, "
        "the same on all machines");
  if (machines.port == 0)
    throw_missing("the port at which the machines meet is missing",
                  "set --main_process_port, the same on all machines");
  if (!by_endpoint && machines.min_count == machines.max_count && !options.machine_rank)
    throw_missing(
        "the rank of this machine is missing",
        "set --machine_rank to a different value on each machine, or use --rdzv_endpoint, "
        "which assigns ranks");
}

void check_processes(const Machines& machines, const LaunchOptions& options) {
  if (!options.num_processes) return;
  if (machines.min_count != machines.max_count)
    throw_conflict("num_processes with a range of machines",
                   "set the number per machine with --nproc_per_node");
  if (options.nproc_per_node &&
      *options.nproc_per_node * machines.max_count != *options.num_processes)
    throw_conflict(str("num_processes is ", *options.num_processes, ", but nproc_per_node is ",
                       *options.nproc_per_node, " on ", machines.max_count, " machines"),
                   "remove one of them");
  if (*options.num_processes % machines.max_count != 0) {
    throw ConfigError("config.contradiction",
                      {.what = "num_processes, the total of all machines",
                       .got = str(*options.num_processes, " on ", machines.max_count, " machines"),
                       .expected = str("a multiple of ", machines.max_count),
                       .hint = "set the number per machine with --nproc_per_node"});
  }
}

}  // namespace

Machines resolve_machines(const LaunchOptions& options) {
  Machines machines;
  set_counts(machines, options);
  check_standalone(machines, options);
  set_endpoint(machines, options);
  if (options.machine_rank && machines.min_count == machines.max_count)
    machines.rank = *options.machine_rank;
  if (options.slurm) {
    check_script(machines, options);
  } else {
    check_rank(machines, options);
  }
  check_processes(machines, options);
  if (!machines.has_several()) machines.host.clear();
  return machines;
}

}  // namespace hasten
