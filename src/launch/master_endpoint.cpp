#include "launch/master_endpoint.h"

#include <algorithm>

#include "hasten/base/text.h"
#include "launch/slurm_tasks.h"

namespace hasten {
namespace {

constexpr int kFirstPort = 20000;  // below the ports that Linux gives to clients, from 32768 on
constexpr int kPorts = 9973;  // a prime, so that neighbouring numbers and multiples do not collide
constexpr int kDefaultPort = 29500;  // PyTorch's default

bool has_torchrun_variables(const Worker& worker) {
  return worker.started_by == LauncherKind::torchrun || worker.started_by == LauncherKind::hasten;
}

// Returns the job's number in Slurm, PBS or LSF. Each task of a Slurm array has its own
// SLURM_JOB_ID.
std::string scheduler_job(const Variables& variables) {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    if (variables.has(name)) return variables.text(name);
  }
  return "";
}

std::string open_mpi_job(const Variables& variables) {
  return variables.text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid");
}

// Returns what distinguishes this job from others on the same machines. Only srun's key includes
// the step, because mpirun inside Slurm has its own step only on some machines.
std::string port_key(const Worker& worker, const Variables& variables) {
  if (worker.started_by == LauncherKind::open_mpi && !open_mpi_job(variables).empty())
    return open_mpi_job(variables);
  const std::string job = scheduler_job(variables);
  if (worker.started_by == LauncherKind::slurm && !job.empty() && variables.has("SLURM_STEP_ID"))
    return job + "." + variables.text("SLURM_STEP_ID");
  return job;
}

void set_port(Worker& worker, const Variables& variables) {
  if (const auto port = variables.number("MASTER_PORT")) {
    if (*port < 1 || *port > 65535)
      throw_environment(
          {.what = "MASTER_PORT", .got = str(*port), .expected = "a port from 1 to 65535"});
    worker.master_port = static_cast<int>(*port);
    worker.port_source = "MASTER_PORT";
  } else if (const std::string key = port_key(worker, variables); !key.empty()) {
    worker.master_port = port_of_job(key);
    worker.port_source = "the job's number " + key;
  } else {
    worker.master_port = kDefaultPort;
    worker.port_source = "PyTorch's default port, since the job has no number";
  }
}

// Returns a name or an address without a port and without IPv6's brackets. Throws for other texts.
std::string checked_address(std::string address) {
  const bool bracketed = starts_with(address, "[") && ends_with(address, "]");
  if (bracketed) address = address.substr(1, address.size() - 2);
  const auto colons = std::count(address.begin(), address.end(), ':');
  const bool has_invalid_letter =
      std::any_of(address.begin(), address.end(), [](unsigned char letter) {
        return letter <= ' ' || letter >= 0x7f || letter == '/' || letter == '[' || letter == ']' ||
               letter == ',';
      });
  if (address.empty() || has_invalid_letter || colons == 1 || (bracketed && colons == 0))
    throw_environment({.what = "MASTER_ADDR",
                       .got = "'" + address + "'",
                       .expected = "the name or the address of one host",
                       .hint = colons == 1 ? "set the port in MASTER_PORT" : ""});
  return address;
}

std::string hint_for_address(LauncherKind by) {
  switch (by) {
    case LauncherKind::open_mpi:
      return "run mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ..., where HOST is rank 0's host";
    case LauncherKind::pmi:
      return "run mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ..., where HOST is rank "
             "0's host";
    default:
      return "set MASTER_ADDR to rank 0's host in every process";
  }
}

void set_address(Worker& worker, const Variables& variables) {
  const auto first_of = [&](const char* name) {
    worker.master_addr = expand_slurm_hosts(variables.text(name)).front();
    worker.address_source = str("the first host of ", name);
  };
  if (variables.has("MASTER_ADDR")) {
    worker.master_addr = checked_address(variables.text("MASTER_ADDR"));
    worker.address_source = "MASTER_ADDR";
  } else if (worker.local_world_size == worker.world_size) {
    worker.master_addr = "127.0.0.1";
    worker.address_source = "all processes are on this machine";
  } else if (worker.started_by == LauncherKind::slurm && variables.has("SLURM_STEP_NODELIST")) {
    first_of("SLURM_STEP_NODELIST");
  } else if (variables.has("SLURM_JOB_NODELIST")) {
    first_of("SLURM_JOB_NODELIST");
  } else {
    throw_environment({.what = str("no address for ", worker.world_size, " processes started by ",
                                   name_of(worker.started_by)),
                       .expected = "MASTER_ADDR",
                       .hint = hint_for_address(worker.started_by)});
  }
}

}  // namespace

int port_of_job(std::string_view job) {
  int value = 0, number = 0;
  bool in_number = false;
  const auto add = [&](int piece) { value = (value * 7919 + piece) % kPorts; };
  for (const char letter : job) {
    const bool digit = letter >= '0' && letter <= '9';
    if (in_number && !digit) add(number);
    number = digit ? ((in_number ? number : 0) * 10 + (letter - '0')) % kPorts : 0;
    if (!digit) add(static_cast<unsigned char>(letter));
    in_number = digit;
  }
  if (in_number) add(number);
  return kFirstPort + value;
}

std::string find_job_name(const Worker& worker, const Variables& variables) {
  if (has_torchrun_variables(worker) && variables.has("TORCHELASTIC_RUN_ID"))
    return variables.text("TORCHELASTIC_RUN_ID");
  if (const std::string job = slurm_job_name(variables); !job.empty()) return job;
  const std::string job = scheduler_job(variables);
  if (job.empty() && worker.started_by == LauncherKind::open_mpi) return open_mpi_job(variables);
  return job;
}

void set_master_endpoint(Worker& worker, const Variables& variables) {
  set_address(worker, variables);
  set_port(worker, variables);
  worker.store_is_served =
      has_torchrun_variables(worker) && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
}

}  // namespace hasten
