#!/usr/bin/env bash
# One process for each slot, by Open MPI; the programs themselves need no MPI.
#
#   open_mpi.sh HOST:SLOTS,HOST:SLOTS,... PROCESSES PROGRAM [ARGUMENT ...]
#   open_mpi.sh node1:4,node2:4 8 ./train --epochs 3
set -euo pipefail
hosts=${1:?hosts with their slots} processes=${2:?how many processes}
shift 2

# mpirun tells no process where rank 0 is: the first host has it. Another port for each job at once on these machines.
export MASTER_ADDR=${MASTER_ADDR:-${hosts%%[:,]*}} MASTER_PORT=${MASTER_PORT:-29500}
# Only processes of this job know the token by which they recognise each other.
HASTEN_JOB_TOKEN=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')
export HASTEN_JOB_TOKEN

# Left alone, Open MPI gives each process one core, or one socket; hasten's threads want theirs.
exec mpirun --host "$hosts" -n "$processes" --bind-to none \
  -x MASTER_ADDR -x MASTER_PORT -x HASTEN_JOB_TOKEN "$@"
