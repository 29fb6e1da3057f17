// File: hasten/launch/worker.h
// Finds out which of the started processes this one is, from the variables of the launcher that has
// started it: hasten launch, torchrun, Open MPI, MPICH, Intel MPI, MVAPICH, Slurm's srun,
// Kubernetes, or none.
//
//   const Worker worker = this_worker();
//   std::printf("rank %ld of %ld\n", worker.rank, worker.world_size);
//
// The first launcher in this order with variables that give a world size determines all values:
// torchrun (hasten launch sets its variables too), Open MPI, MVAPICH, PMI (MPICH, Intel MPI),
// Slurm, an indexed job of Kubernetes. The address of rank 0 is MASTER_ADDR, else this machine if
// it has all processes, else the first host of Slurm's list. The port is MASTER_PORT, else
// port_of_job() of the job's number, which is the same in every process, else PyTorch's 29500.
//
// If a launcher does not number its machines (MPI), they are assumed to be filled one after the
// other.
//
// Needs no torch. Throws ConfigError "launch.environment" if the variables contradict each other,
// are not numbers, or give no address. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/environment.h"
#include "hasten/options/detail/names.h"

namespace hasten {

// The launcher that has started the process. `pmi` is MPICH or Intel MPI.
enum class LauncherKind { none, hasten, torchrun, open_mpi, mvapich, pmi, slurm, kubernetes };

template <>
struct Names<LauncherKind> {
  static constexpr std::string_view text[] = {"no launcher", "hasten launch", "torchrun",
                                              "Open MPI",    "MVAPICH",       "PMI",
                                              "Slurm",       "Kubernetes"};
};

// The place of a process among those that were started together.
struct Worker {
  LauncherKind started_by = LauncherKind::none;
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;  // Among the processes of this machine.
  std::int64_t local_world_size = 1;
  std::int64_t machine_rank = 0;
  std::int64_t num_machines = 1;
  std::int64_t attempt = 0;         // The number of earlier restarts.
  std::string job = {};             // Number or name of the job; empty if unknown.
  std::string master_addr = {};     // Address of rank 0; empty if world_size is 1.
  int master_port = 0;              // 0 if world_size is 1.
  std::string address_source = {};  // "MASTER_ADDR", "the first host of SLURM_JOB_NODELIST", ...
  std::string port_source = {};     // "MASTER_PORT", "the job's number 4711", ...
  // True if torchrun's agent serves the TCPStore at that port, so that all ranks are clients.
  bool store_is_served = false;
};

// Returns the place of this process, from its own variables.
HASTEN_API Worker this_worker();
HASTEN_API Worker worker_of(const config::Environment& environment);

// Expands a Slurm list of hosts: "gpu[01-03,7],login" gives gpu01 gpu02 gpu03 gpu7 login. Throws
// ConfigError "launch.environment".
HASTEN_API std::vector<std::string> expand_slurm_hosts(std::string_view list);

// A port from 20000 to 29972 that depends only on the job: 20000 + number modulo 9973 if `job` is a
// number, so that 9,973 consecutive jobs have different ports.
HASTEN_API int port_of_job(std::string_view job);

}  // namespace hasten
