// File: hasten/launch/worker.h
// Which of the started processes this one is, in the words of whoever started it: hasten launch,
// torchrun, Open MPI, MPICH, Intel MPI, MVAPICH, Slurm's srun, Kubernetes, or nobody.
//
//   const Worker worker = worker_of(config::whole_environment());
//   std::printf("rank %ld of %ld\n", worker.rank, worker.world_size);
//
// The first of these that says a world size is believed, and said by it is all of it: torchrun's
// variables (hasten launch sets them too), Open MPI's, MVAPICH's, PMI's, Slurm's, an indexed
// Kubernetes job's. Where they give no address, it is this machine if it has all processes, else
// the first host of Slurm's list; where no port, one from 20000 to 29999 that follows from the
// job's number, the same in every process, and PyTorch's 29500 where the job has no number.
//
// Machines that a launcher does not number (MPI's) are taken to be filled one after the other.
//
// Needs no torch. Throws ConfigError "launch.environment" where the variables contradict each other
// or are no numbers. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/names.h"
#include "hasten/config/sources.h"

namespace hasten {

enum class StartedBy { nobody, hasten, torchrun, open_mpi, mvapich, pmi, slurm, kubernetes };

template <>
struct Names<StartedBy> {
  static constexpr std::string_view text[] = {"nobody",  "hasten launch", "torchrun", "Open MPI",
                                              "MVAPICH", "PMI",           "Slurm",    "Kubernetes"};
};

struct Worker {
  StartedBy started_by = StartedBy::nobody;
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;  // among those of this machine
  std::int64_t local_world_size = 1;
  std::int64_t machine_rank = 0;
  std::int64_t num_machines = 1;
  std::int64_t attempt = 0;  // 0: the first; after restarts more
  std::string job;           // its number or name; empty: not told
  std::string master_addr;   // where rank 0 is met; empty in a world of one
  int master_port = 0;       // 0 in a world of one
  std::string address_from;  // "MASTER_ADDR", "the first host of SLURM_JOB_NODELIST", ...
  std::string port_from;     // "MASTER_PORT", "the job's number 4711", ...
  bool store_is_served =
      false;  // torchrun's agent serves the TCPStore at that port: all are clients
};

Worker worker_of(const config::Environment& environment);

// The hosts of a Slurm list: "gpu[01-03,7],login" gives gpu01 gpu02 gpu03 gpu7 login. Throws
// ConfigError "launch.environment".
std::vector<std::string> hosts_of_slurm(std::string_view list);

// From 20000 to 29999, the same for the same job, and another one for its 9972 neighbours by
// number: 20000 + job modulo 9973 for a plain number.
int port_of_job(std::string_view job);

}  // namespace hasten
