#!/usr/bin/env bash
# Starts a program with Open MPI, one process per slot. The program itself needs no MPI.
#
#   $ open_mpi.sh HOST:SLOTS,HOST:SLOTS,... PROCESSES PROGRAM [ARGUMENT ...]
#   $ open_mpi.sh node1:4,node2:4 8 ./train --epochs 3
set -euo pipefail
hosts=${1:?hosts with their slots} processes=${2:?number of processes}
shift 2

# mpirun does not set the address of rank 0, which runs on the first host. Jobs that run on these machines at the same time need
# different ports.
export MASTER_ADDR=${MASTER_ADDR:-${hosts%%[:,]*}} MASTER_PORT=${MASTER_PORT:-29500}
# Only processes of this job know this token, with which they authenticate each other.
HASTEN_JOB_TOKEN=$(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')
export HASTEN_JOB_TOKEN

# By default Open MPI binds each process to one core or socket, but hasten's threads need more cores.
exec mpirun --host "$hosts" -n "$processes" --bind-to none \
  -x MASTER_ADDR -x MASTER_PORT -x HASTEN_JOB_TOKEN "$@"
