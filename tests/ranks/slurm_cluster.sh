#!/usr/bin/env bash
# A private Slurm cluster on this machine, for tests: a controller and two machines, all of them local processes.
#
#   slurm_cluster.sh start DIR [PID]   writes only to DIR; with PID it stops when that process has ended
#   slurm_cluster.sh stop DIR
#   SLURM_CONF=DIR/slurm.conf srun -N2 -n4 ...
#
# The machines are named 127.0.0.1 and 127.0.0.2, so that every process can reach them by name. This needs no root, no systemd
# and no network except the loopback device. DIR's path must be short, because it contains a socket.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
command=${1:?start or stop} dir=$(readlink -m "${2:?a folder}") owner=${3:-}
export SLURM_CONF=$dir/slurm.conf

fail() {
  echo "slurm_cluster: $*" >&2
  tail -n 20 "$dir"/*.log >&2 2>/dev/null || true
  exit 1
}

# The processes of this cluster: its daemons, and the processes of its jobs. Zombies do not count.
living() {
  python3 - "SLURM_CONF=$SLURM_CONF" <<'END'
import pathlib, sys
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        name, state = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        continue
    of_a_job = any(variable.startswith("SLURM_JOB_ID=") for variable in variables)
    if sys.argv[1] in variables and state.split()[0] not in "ZX" and (of_a_job or name.startswith(("munged", "slurm"))):
        print(folder.name)
END
}

free_ports() {
  python3 - "$1" <<'END'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets:
    s.bind(("", 0))
print(*(s.getsockname()[1] for s in sockets))
END
}

write_configuration() {
  local control one two user
  user=$(id -un)
  read -r control one two < <(free_ports 3)
  cat >"$SLURM_CONF" <<END
ClusterName=hasten_test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$control
AuthInfo=socket=$dir/munge.socket
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=2
ReturnToService=2
NodeName=127.0.0.1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$one CPUs=8
NodeName=127.0.0.2 NodeHostname=$(hostname) NodeAddr=127.0.0.2 Port=$two CPUs=8
PartitionName=test Nodes=ALL Default=YES State=UP
END
}

start() {
  [ ! -e "$SLURM_CONF" ] || stop
  mkdir -p "$dir/state" "$dir/spool"
  chmod 755 "$dir"
  write_configuration
  # No control groups are used; this plugin also works without any.
  echo CgroupPlugin=cgroup/v1 >"$dir/cgroup.conf"
  (umask 077 && head -c 128 /dev/urandom >"$dir/munge.key")
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" --log-file="$dir/munge.log" \
    --seed-file="$dir/munge.seed" 2>"$dir/munge.err" || { cat "$dir/munge.err" >&2; fail "munged does not start"; }
  slurmctld -c -f "$SLURM_CONF" >"$dir/slurmctld.err" 2>&1 || { cat "$dir/slurmctld.err" >&2; fail "slurmctld does not start"; }
  for node in 127.0.0.1 127.0.0.2; do
    slurmd -f "$SLURM_CONF" -N $node >"$dir/slurmd-$node.err" 2>&1 || { cat "$dir/slurmd-$node.err" >&2; fail "slurmd $node does not start"; }
  done
  for _ in $(seq 150); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | sort -u)" = idle ] && break
    sleep 0.1
  done
  [ "$(sinfo -h -N -o %T)" = $'idle\nidle' ] || fail "the machines are not ready: $(sinfo -h -N -o '%N %T %E')"
  [ -z "$owner" ] || watch >/dev/null 2>&1 </dev/null &
}

# The process that started the cluster may be killed before it can stop the cluster.
watch() {
  trap '' HUP INT
  while kill -0 "$owner" 2>/dev/null && [ -e "$SLURM_CONF" ]; do sleep 1; done
  exec setsid "$0" stop "$dir"
}

stop() {
  [ -e "$SLURM_CONF" ] || return 0
  timeout 5 scancel --user="$(id -un)" 2>/dev/null || true
  local signal pids
  for signal in TERM KILL KILL; do
    pids=$(living)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -$signal $pids 2>/dev/null || true
    for _ in $(seq 30); do
      [ -n "$(living)" ] || break
      sleep 0.1
    done
  done
  rm -f "$SLURM_CONF"
  # A daemon that ends may start a process for its shutdown.
  for _ in $(seq 30); do
    pids=$(living)
    [ -n "$pids" ] || return 0
    sleep 0.1
  done
  fail "still running: $pids"
}

case $command in
  start) start ;;
  stop) stop ;;
  *) fail "got $command, expected start or stop" ;;
esac
