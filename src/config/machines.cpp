#include "hasten/config/machines.h"

#include <charconv>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/config/endpoint.h"
#include "hasten/config/launch_options.h"

namespace hasten {
namespace {

[[noreturn]] void contradiction(std::string what, std::string hint) {
  throw ConfigError("config.contradiction", {.what = std::move(what), .hint = std::move(hint)});
}

[[noreturn]] void missing(std::string what, std::string hint) {
  throw ConfigError("config.missing", {.what = std::move(what), .hint = std::move(hint)});
}

std::int64_t count_in(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
  if (error != std::errc() || end != part.data() + part.size() || count < 1 || count > 4096) {
    throw ConfigError("config.bad-value",
                      {.what = "nnodes",
                       .got = "'" + text + "'",
                       .expected = "a number such as 2, or a range such as 2:4"});
  }
  return count;
}

void set_counts(Machines& machines, const LaunchOptions& options) {
  machines.least = machines.most = options.num_machines.value_or(1);
  if (options.nnodes.empty()) return;
  const auto parts = split(options.nnodes, ':');
  machines.least = count_in(options.nnodes, parts.front());
  machines.most = count_in(options.nnodes, parts.back());
  if (parts.size() > 2 || machines.least > machines.most) {
    throw ConfigError("config.bad-value",
                      {.what = "nnodes",
                       .got = "'" + options.nnodes + "'",
                       .expected = "LEAST:MOST, where LEAST is not above MOST"});
  }
  if (options.num_machines &&
      (*options.num_machines != machines.most || machines.least != machines.most))
    contradiction(
        str("num_machines is ", *options.num_machines, ", but nnodes is ", options.nnodes),
        "remove one of them");
}

void check_standalone(const Machines& machines, const LaunchOptions& options) {
  if (options.standalone && machines.several())
    contradiction(str("standalone with ", machines.most, " machines"), "remove one of them");
}

void set_place(Machines& machines, const LaunchOptions& options) {
  machines.host = options.main_process_ip;
  machines.port = static_cast<int>(
      options.main_process_port.value_or(machines.several() ? kRendezvousPort : 0));
  if (options.rdzv_endpoint.empty()) return;
  const auto endpoint = endpoint_of(options.rdzv_endpoint, machines.port);
  if (!options.main_process_ip.empty() && options.main_process_ip != endpoint.host)
    contradiction("main_process_ip is " + options.main_process_ip + ", but rdzv_endpoint is " +
                      options.rdzv_endpoint,
                  "remove one of them");
  if (options.main_process_port && *options.main_process_port != endpoint.port)
    contradiction(str("main_process_port is ", *options.main_process_port,
                      ", but rdzv_endpoint is ", options.rdzv_endpoint),
                  "remove one of them");
  machines.host = endpoint.host;
  machines.port = endpoint.port;
}

// Throws ConfigError for options that contradict --slurm, whose script has a fixed number of
// machines and sets their ranks and where they meet.
void check_script(const Machines& machines, const LaunchOptions& options) {
  if (machines.least != machines.most)
    contradiction("slurm with nnodes " + options.nnodes,
                  "set a fixed number, because Slurm gives a job all of its machines at once");
  const bool says_more = options.machine_rank.value_or(0) != 0 ||
                         !options.main_process_ip.empty() || options.main_process_port ||
                         !options.rdzv_endpoint.empty();
  if (says_more)
    contradiction("slurm with machine_rank, main_process_ip, main_process_port or rdzv_endpoint",
                  "remove these options, because the script sets them");
}

void check_rank(const Machines& machines, const LaunchOptions& options) {
  const bool by_endpoint =
      !options.rdzv_endpoint.empty() || options.rdzv_backend == RendezvousBackend::c10d;
  if (options.machine_rank && *options.machine_rank >= machines.most)
    contradiction(str("machine_rank is ", *options.machine_rank, " with ", machines.most,
                      machines.most == 1 ? " machine" : " machines"),
                  str("use a rank from 0 to ", machines.most - 1));
  if (options.machine_rank && machines.least != machines.most && *options.machine_rank > 0)
    contradiction("machine_rank with a range of machines",
                  "remove machine_rank, because ranks are assigned");
  if (machines.least != machines.most && options.rdzv_backend == RendezvousBackend::static_)
    contradiction("rdzv_backend is static, but nnodes is the range " + options.nnodes,
                  "use --rdzv_backend c10d");
  if (!machines.several()) return;
  if (machines.host.empty())
    missing("the address at which the machines meet is missing",
            "set --main_process_ip to the address of machine 0, or --rdzv_endpoint to HOST:PORT, "
            "the same on all machines");
  if (machines.port == 0)
    missing("the port at which the machines meet is missing",
            "set --main_process_port, the same on all machines");
  if (!by_endpoint && machines.least == machines.most && !options.machine_rank)
    missing("the rank of this machine is missing",
            "set --machine_rank to a different value on each machine, or use --rdzv_endpoint, "
            "which assigns ranks");
}

void check_processes(const Machines& machines, const LaunchOptions& options) {
  if (!options.num_processes) return;
  if (machines.least != machines.most)
    contradiction("num_processes with a range of machines",
                  "set the number per machine with --nproc_per_node");
  if (options.nproc_per_node && *options.nproc_per_node * machines.most != *options.num_processes)
    contradiction(str("num_processes is ", *options.num_processes, ", but nproc_per_node is ",
                      *options.nproc_per_node, " on ", machines.most, " machines"),
                  "remove one of them");
  if (*options.num_processes % machines.most != 0) {
    throw ConfigError("config.contradiction",
                      {.what = "num_processes, the total of all machines",
                       .got = str(*options.num_processes, " on ", machines.most, " machines"),
                       .expected = str("a multiple of ", machines.most),
                       .hint = "set the number per machine with --nproc_per_node"});
  }
}

}  // namespace

Machines machines_of(const LaunchOptions& options) {
  Machines machines;
  set_counts(machines, options);
  check_standalone(machines, options);
  set_place(machines, options);
  if (options.machine_rank && machines.least == machines.most)
    machines.rank = *options.machine_rank;
  options.slurm ? check_script(machines, options) : check_rank(machines, options);
  check_processes(machines, options);
  if (!machines.several()) machines.host.clear();
  return machines;
}

}  // namespace hasten
