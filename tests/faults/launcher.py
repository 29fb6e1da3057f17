#!/usr/bin/env python3
"""Tests `hasten launch` with unread output, unusual parents, attacks on its cleanup process, and processes that outlive their rank.

    launcher.py HASTEN [--only NAME | --without NAME]

Cases that need root print "not tried" without it. The case speed measures times, so it needs a machine that does nothing else.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import random
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ranks"))
from checks import check, exit_code  # noqa: E402
from clean import CLEAN  # noqa: E402
from processes import marked, until  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("hasten")
parser.add_argument("--only", help="run only the cases whose name contains NAME", metavar="NAME")
parser.add_argument("--without", help="leave out the cases whose name contains NAME", metavar="NAME")
options = parser.parse_args()
HASTEN = os.path.abspath(options.hasten)
FOLDER = pathlib.Path(tempfile.mkdtemp())
FOLDER.chmod(0o755)
VARIABLES = CLEAN | {"OMP_NUM_THREADS": "1"}
MANY_LINES = 'seq 1 60000\n'  # 350 KB, which is more than the buffers of a pipe and of the launcher hold together


def program(text):
    file = FOLDER / f"program_{random.getrandbits(32):08x}"
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    return file


def launch(*words, command="launch", **popen_options):
    return subprocess.Popen([HASTEN, command, *map(str, words)], **{"env": VARIABLES, "text": True} | popen_options)


def code_within(process, seconds):
    """Returns the exit code, or None if the process had to be killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def new_mark():
    return f"{random.getrandbits(48):012x}"


def all_ended(mark, seconds=10):
    """Returns whether no process with the mark is alive. Kills the processes that still run."""
    if until(lambda: not marked(mark), seconds):
        return True
    for process in marked(mark):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return False


def state(process):
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
        return text[text.rfind(")") + 2]
    except OSError:
        return None


def ignoring(*numbers):
    def ignore():
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
    return ignore


def output_not_read():
    """The launcher handles failures, signals and other machines while nobody reads its output."""
    fails = program(f'[ "$RANK" = 1 ] && {{ sleep 1; echo last output; exit 3; }}\n{MANY_LINES}sleep 60\n')
    run = launch("-n", "2", "--grace_period", "1", fails, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(code_within(run, 20) == 3, "unread output: a rank's failure ends the job with its code")
    text = run.stderr.read()
    check("rank 1" in text and "| last output" in text, "unread output: the failure is reported with the last lines", text)
    check("bytes could not be written to standard output" in text, "unread output: the dropped bytes are counted", text)

    run = launch("-n", "2", "--grace_period", "1", fails, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(code_within(run, 20) == 3, "unread output: the same if both streams are one pipe")

    stays = program(f"{MANY_LINES}sleep 60\n")
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        run = launch("-n", "2", "--grace_period", "1", stays, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        run.send_signal(number)
        check(code_within(run, 20) == code, f"unread output: {number.name} ends the job with {code}")

    port = random.randrange(30000, 32000)
    fails = program(f'[ "$RANK" = 1 ] || exec sleep 60\n{MANY_LINES.strip()} &\nsleep 1\nexit 3\n')

    def machine(rank, **popen_options):
        words = ("--num_machines", 2, "--machine_rank", rank, "--main_process_ip", "127.0.0.1", "--main_process_port", port)
        return launch(*words, "--nproc_per_node", 1, fails, stderr=subprocess.PIPE,
                      env=VARIABLES | {"HASTEN_JOB_TOKEN": "0123456789abcdef0123456789abcdef"}, **popen_options)
    first, second = machine(0, stdout=subprocess.DEVNULL), machine(1, stdout=subprocess.PIPE)
    codes = code_within(first, 30), code_within(second, 30)
    check(codes == (3, 3), f"unread output of one of two machines: both end with the failed rank's code: {codes}")


def output_read_late():
    """A slow reader gets all output, unchanged and in order."""
    script = program(f'{MANY_LINES}[ "$RANK" = 1 ] && printf "a\\0b"\nexit 0\n')
    run = launch("-n", "2", script, stdout=subprocess.PIPE, text=False)
    time.sleep(1.5)
    flags = fcntl.fcntl(run.stdout, fcntl.F_GETFL)
    lines = run.stdout.read().split(b"\n")
    check(run.wait() == 0, "a slow reader: the job succeeds")
    expected = [str(i).encode() for i in range(1, 60001)]
    for rank, more in ((0, []), (1, [b"a\0b"])):
        prefix = f"[{rank}] ".encode()
        got = [line[len(prefix):] for line in lines if line.startswith(prefix)]
        check(got == expected + more, f"a slow reader: gets each line of rank {rank} once, complete and in order", len(got))
    check(not flags & os.O_NONBLOCK, "the launcher does not change the flags of a shared file")

    # The launcher inherits a file that is already non-blocking.
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    run = launch("-n", "1", script, stdout=ends[1])
    os.close(ends[1])
    time.sleep(0.5)
    with open(ends[0], "rb") as file:
        check(file.read().split() == expected, "a non-blocking pipe: gets every line once")
    run.wait()


def reader_closes():
    """The ranks continue without a reader."""
    done = FOLDER / "done"
    script = program(f"for i in 1 2 3 4 5 6 7 8; do echo line; sleep 0.1; done\necho end >{done}\nexit 5\n")
    run = launch("-n", "1", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.readline()
    run.stdout.close()
    check(code_within(run, 20) == 5 and done.exists(), "the reader closes the pipe: the rank runs to its end")
    text = run.stderr.read()
    check(text.count("cannot write to standard output: Broken pipe") == 1, "this is reported once", text)
    run = launch("-n", "1", program("sed -n 's/^SigIgn:\t//p' /proc/self/status\n"), stdout=subprocess.PIPE)
    ignored = int(run.communicate(timeout=20)[0], 16)
    check(not ignored >> (signal.SIGPIPE - 1) & 1, "ranks do not ignore SIGPIPE")
    for closed in ("1", "2"):
        shell = subprocess.run(["sh", "-c", f'exec "$@" {closed}>&-', "sh", HASTEN, "launch", program("echo text; exit 6\n")], env=VARIABLES,
                               capture_output=True, timeout=20)
        check(shell.returncode == 6, f"the launcher works with a closed standard stream ({closed})", shell)


def endless_writer():
    """The launcher ends although a process that a rank left behind keeps writing."""
    mark = new_mark()
    script = program(f"setsid sh -c 'yes; : {mark}' &\nsleep 0.3\nexit 1\n")
    run = launch("-n", "2", script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    check(code_within(run, 20) == 1, "a rank's child writes endlessly: the job ends")
    check(all_ended(mark), "the child is killed")


def inherited_signal_settings():
    """Inherited signal settings do not stop the launcher, and the launcher and its ranks keep them."""
    run = launch("-n", "2", "true", preexec_fn=ignoring(signal.SIGCHLD))
    check(code_within(run, 20) == 0, "a parent that ignores SIGCHLD: the job succeeds")
    run = launch("-n", "2", program("exit 9\n"), preexec_fn=ignoring(signal.SIGCHLD), stderr=subprocess.PIPE)
    check(code_within(run, 20) == 9, "a parent that ignores SIGCHLD: a failure has its code")

    if not pathlib.Path(HASTEN).with_name("hasten-torch").exists():
        print("not tried: hasten test needs hasten-torch")
    else:
        run = launch("-n", "2", command="test", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=ignoring(signal.SIGCHLD))
        code = code_within(run, 120)
        check(code == 0, "a parent that ignores SIGCHLD: all checks of hasten test pass", run.stdout.read())

    for number in (signal.SIGHUP, signal.SIGINT):
        script = program("sed -n 's/^SigIgn:\t//p' /proc/self/status\nsleep 1.5\nexit 4\n")
        run = launch("-n", "1", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignoring(number))
        ignored = int(run.stdout.readline(), 16)
        run.send_signal(number)
        check(code_within(run, 20) == 4, f"the launcher still ignores an inherited, ignored {number.name}")
        check(ignored >> (number - 1) & 1, f"its ranks ignore {number.name} too")


def no_process_remains():
    """However the launcher ends, every process of the job ends, and other processes do not."""
    mark = new_mark()
    script = program(f"env -i setsid sh -c 'sleep 60; : {mark}' &\nsleep 0.3\n")
    check(code_within(launch("-n", "1", script), 20) == 0 and all_ended(mark), "a child with an empty environment in a new session is ended")

    # A child that the launcher has inherited does not belong to any rank.
    other = new_mark()
    shell = subprocess.run(["sh", "-c", f"sh -c 'sleep 60; : {other}' & exec \"$@\"", "sh", HASTEN, "launch", "-n", "1", script],
                           env=VARIABLES, timeout=20, stdout=subprocess.DEVNULL)
    check(shell.returncode == 0 and len(marked(other)) == 1, "a process that existed before the launcher is not ended")
    all_ended(other, 0)
    all_ended(mark, 0)

    mark = new_mark()
    inner = program(f"setsid sh -c 'sleep 60; : {mark}' &\nsleep 60\n")
    outer = launch("-n", "1", program(f"exec {HASTEN} launch -n 1 {inner}\n"), stderr=subprocess.DEVNULL)
    check(until(lambda: marked(mark), 10), "a launcher runs inside a rank")
    outer.kill()
    outer.wait()
    check(all_ended(mark), "if the outer launcher is killed, the inner one's processes end")

    mark, logs = new_mark(), FOLDER / "no_logs"
    (logs / "attempt_0" / "rank_40.log").mkdir(parents=True)
    script = program(f"[ $RANK = 0 ] && setsid sh -c 'sleep 60; : {mark}' &\nsleep 20\n")
    run = launch("-n", "41", "--log_dir", logs, script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    check(code_within(run, 30) == 4 and "rank_40.log" in run.stderr.read(), "a start that fails half-way is reported")
    check(all_ended(mark), "the ranks that were started are ended")


def cleanup_process_refused():
    """No rank starts without the cleanup process, which ends the ranks of a killed launcher."""
    if os.geteuid() != 0:
        return print("not tried: needs root")
    user = 65532  # other tests run processes of the user 65534, which would count towards the limit
    version = subprocess.run([HASTEN, "--version"], user=user, group=user, env=VARIABLES, capture_output=True, check=False)

    def limit_to_one_process():
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        os.setgid(user)
        os.setuid(user)
    if version.returncode != 0:
        return print("not tried: the command cannot be run by another user")
    run = launch("-n", "1", "/bin/true", stderr=subprocess.PIPE, preexec_fn=limit_to_one_process)
    code, text = code_within(run, 20), run.stderr.read()
    check(code == 4 and "launch.start" in text and "starting the cleanup process" in text, "an error reports that the cleanup process cannot start", code, text)


def find_cleanup_process(run):
    for process in marked("") if run.poll() is None else []:
        try:
            status = pathlib.Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        if status.startswith("Name:\thasten-cleanup") and f"PPid:\t{run.pid}\n" in status and "State:\tZ" not in status:
            return process
    return None


def cleanup_process_killed_or_stopped():
    """A launcher ends although its cleanup process is stopped, and replaces a killed cleanup process."""
    for number, text, code in ((signal.SIGTERM, "echo up\nexec sleep 60\n", 143), (None, "echo up\nsleep 5\n", 0)):
        run = launch("-n", "1", "--grace_period", "2", program(text), stdout=subprocess.PIPE)
        run.stdout.readline()
        check(until(lambda run=run: find_cleanup_process(run), 4), "a launcher has a cleanup process")
        cleanup_process = find_cleanup_process(run)
        os.kill(cleanup_process, signal.SIGSTOP)
        if number:
            run.send_signal(number)
        got = code_within(run, 20)
        if got is None:
            os.kill(cleanup_process, signal.SIGCONT)
        check(got == code, f"a stopped cleanup process: the launcher ends with {code}", got)

    mark = new_mark()
    script = program(f"setsid sh -c 'sleep 60; : {mark}' </dev/null >/dev/null 2>&1 &\necho up\nexec sleep 60\n")
    run = launch("-n", "1", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.readline()
    until(lambda: marked(mark), 10)
    time.sleep(0.1)  # a new cleanup process starts some time after the ranks
    text = ""
    for _ in range(2):
        before = find_cleanup_process(run)
        if before:
            os.kill(before, signal.SIGKILL)
        check(until(lambda: find_cleanup_process(run) not in (None, before), 10), "a killed cleanup process is replaced")
        text += run.stderr.readline() if select.select([run.stderr], [], [], 10)[0] else ""  # it may be reported a little later
    run.kill()
    run.wait()
    text += run.stderr.read()
    check(text.count("a new one has been started") == 2, "the replacement is reported", text)
    check(all_ended(mark), "the new cleanup process ends the processes of the killed launcher")


def few_threads():
    """With any limit on processes and threads, a job prints its output or fails with a message."""
    if os.geteuid() != 0:
        return print("not tried: needs root")
    user = 65533
    if subprocess.run([HASTEN, "--version"], user=user, group=user, env=VARIABLES, capture_output=True, check=False).returncode != 0:
        return print("not tried: the command cannot be run by another user")
    script = program("echo up\necho down >&2\nexit 0\n")
    seen = set()
    for limit in range(1, 12):
        def limited(limit=limit):
            os.setgid(user)
            os.setuid(user)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        run = launch("-n", "2", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limited)
        code = code_within(run, 20)
        output, errors = run.stdout.read(), run.stderr.read()
        shown = output.count("up\n") == 2 and errors.count("down\n") == 2
        check((code == 0 and shown) or (code == 4 and "launch.start" in errors), f"{limit} processes and threads: code {code}", output, errors)
        seen.add(code)
    check(seen == {0, 4}, "low limits fail and higher ones do not", seen)


def failing_poll():
    """A launcher whose poll fails continues, without a busy loop."""
    script = program("trap 'exit 0' TERM\necho up\nsleep 2\necho later\nwhile :; do sleep 0.1; done\n")
    run = launch("-n", "2", "--grace_period", "5", script, stdout=subprocess.PIPE)
    lines = [run.stdout.readline() for _ in range(2)]
    check(sorted(lines) == ["[0] up\n", "[1] up\n"], "two ranks run", lines)
    hard = resource.prlimit(run.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(run.pid, resource.RLIMIT_NOFILE, (4, hard))

    def ticks():
        text = pathlib.Path(f"/proc/{run.pid}/stat").read_text()
        return sum(map(int, text[text.rfind(")") + 2:].split()[11:13]))
    before = ticks()
    ready = select.select([run.stdout], [], [], 20)[0]
    check(ready and "later" in run.stdout.readline(), "a failing poll: output is printed")
    check(ticks() - before <= 20, f"a failing poll: the launcher uses {10 * (ticks() - before)} ms of CPU time in 2 s")
    run.send_signal(signal.SIGTERM)
    check(code_within(run, 20) == 143, "a failing poll: a signal ends the job")


def failing_logs():
    """A job continues if a log cannot be written, and ends if writing to a log blocks."""
    again = program("echo up $TORCHELASTIC_RESTART_COUNT\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3\n")
    folder = FOLDER / "refused"
    folder.mkdir()
    (folder / "attempt_1").write_text("a file instead of a folder")
    run = launch("--max_restarts", "1", "--log_dir", folder, again, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    code = code_within(run, 20)
    output, errors = run.stdout.read(), run.stderr.read()
    check(code == 0 and output == "up 0\nup 1\n", "a restart without its log file: the job continues", code, output, errors)
    check(errors.count("attempt_1: Not a directory") == 1 and "is not saved there" in errors, "this is reported once", errors)

    file = FOLDER / "limited" / "attempt_0" / "rank_0.log"
    script = program(f"{MANY_LINES}sed -n 's/^SigIgn:\t//p' /proc/self/status\n")
    run = launch("--log_dir", FOLDER / "limited", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
    output, errors = run.communicate(timeout=30)
    check(run.returncode == 0 and errors.count("File too large") == 1, "a log at its size limit is reported once", run.returncode, errors)
    check(file.stat().st_size == 65536 and output.startswith("1\n2\n"), "the log has the output up to the limit", file.stat().st_size)
    check(not int(output.split("\n")[-2], 16) >> (signal.SIGXFSZ - 1) & 1, "ranks do not ignore SIGXFSZ")

    file = FOLDER / "hangs" / "attempt_0" / "rank_0.log"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    for text, number, code in (("yes\n", signal.SIGTERM, 143), ("seq 1 30000\nexit 7\n", None, 7)):
        run = launch("--grace_period", "1", "--log_dir", FOLDER / "hangs", program(text), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(1)
        if number:
            run.send_signal(number)
        got = code_within(run, 20)
        errors = run.stderr.read()
        check(got == code, f"a blocked log: the job ends with {code}", got, errors)
        check("bytes could not be written to " in errors and "rank_0.log" in errors, "a blocked log: the dropped bytes are counted", errors)
    os.close(reader)


def in_namespaces():
    """The launcher works as process 1 of a container, and with the /proc of a different PID namespace."""
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode != 0:
        return print("not tried: needs permission to create a PID namespace")
    script = program('for i in 1 2 3 4 5; do sh -c "sleep 0.1 & exit 0"; done\n'
                     'for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; zombies=$(grep -l "^State:.*Z" /proc/[0-9]*/status | wc -l)\n'
                     '[ $zombies = 0 ] && break; done\necho $zombies\nsleep 0.1\n')
    zombies = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", HASTEN, "launch", "-n", "1", script], env=VARIABLES, timeout=30,
                          capture_output=True, text=True).stdout.strip()
    check(zombies == "0", f"as process 1 of a container it reaps orphans: {zombies} zombies remain")

    mark, spared = new_mark(), new_mark()
    script = program(f"setsid sh -c 'sleep 60; : {mark}' &\nsleep 0.3\n")
    # The shell is process 1 of the namespace and outlives the launcher. Its child does not belong to the job.
    inside = f"sh -c 'sleep 60; : {spared}' & {HASTEN} launch -n 1 {script}; echo code $?; sleep 20"
    run = subprocess.Popen(["unshare", "--pid", "--fork", "sh", "-c", inside], env=VARIABLES, stdout=subprocess.PIPE, text=True)
    check(run.stdout.readline().strip() == "code 0", "another namespace's /proc: the job ends")
    check(until(lambda: not marked(mark), 5), "the job's processes are ended")
    check(len(marked(spared)) >= 1, "other processes are not ended")
    run.kill()
    run.wait()
    all_ended(spared, 0)
    all_ended(mark, 0)


def terminal_and_stops():
    """Ranks do not read the terminal, and a stopped rank is reported."""
    process, terminal = pty.fork()
    if process == 0:
        os.execve(HASTEN, [HASTEN, "launch", "-n", "1", str(program('read x; echo "got <$x>"\n'))], VARIABLES)
    output = b""
    while b"got" not in output and select.select([terminal], [], [], 20)[0]:
        try:
            output += os.read(terminal, 4096)
        except OSError:
            break
    check(b"got <>" in output, "a rank that reads the terminal gets the end of file", output)
    os.close(terminal)
    os.waitpid(process, 0)
    run = launch("-n", "1", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    check(run.communicate("from a pipe\n", timeout=20)[0] == "from a pipe\n", "a rank reads an input that is not a terminal")

    run = launch("-n", "1", "--grace_period", "30", program("trap 'exit 8' TERM\nkill -STOP $$\nwhile :; do sleep 0.1; done\n"),
                 stderr=subprocess.PIPE)
    ready = select.select([run.stderr], [], [], 20)[0]
    text = run.stderr.readline() if ready else ""
    check("rank 0" in text and "stopped by signal 19 (SIGSTOP)" in text, "a stopped rank is reported", text)
    run.send_signal(signal.SIGTERM)
    check(code_within(run, 20) == 143, "a stopped rank receives the signal to end")


def rank_signalled_first():
    """Slurm signals the launcher and its ranks one after the other, so that a rank may end before the launcher has the signal."""
    script = program("trap 'echo stopped; exit 138' USR1\ntrap 'echo ended; exit 143' TERM\necho up $$\nwhile :; do sleep 0.05; done\n")
    run = launch("-n", "2", "--max_restarts", "1", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.kill([int(run.stdout.readline().split()[-1]) for _ in range(2)][0], signal.SIGUSR1)
    time.sleep(0.2)
    run.send_signal(signal.SIGUSR1)
    output, errors = run.communicate(timeout=20)
    check(run.returncode == 138 and output.count("stopped") == 2 and "ended" not in output,
          "a rank has a signal before the launcher: the others get it too, and nothing is restarted", output + errors)


def suspension():
    """Ctrl-Z stops the ranks and the launcher, and SIGCONT to the launcher continues them."""
    def start(name, **popen_options):
        pids = FOLDER / name
        pids.mkdir()
        script = program(f"echo $$ >{pids}/new_$RANK; mv {pids}/new_$RANK {pids}/rank_$RANK\nwhile [ ! -e {pids}/end ]; do sleep 0.05; done\n")
        run = launch("-n", "2", script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **popen_options)
        check(until(lambda: len(list(pids.glob("rank_*"))) == 2, 10), f"{name}: two ranks run")
        return run, [int((pids / f"rank_{rank}").read_text()) for rank in range(2)], pids / "end"

    def all_run(processes):
        return all(state(process) in ("R", "S", "D") for process in processes)

    # A process group of its own, whose parent belongs to the same session, as a shell makes it.
    run, ranks, end = start("suspended", preexec_fn=os.setpgrp)
    for _ in range(2):
        run.send_signal(signal.SIGTSTP)
        check(until(lambda: all(state(process) == "T" for process in [run.pid, *ranks]), 10), "Ctrl-Z stops the launcher and its ranks")
        run.send_signal(signal.SIGCONT)
        check(until(lambda: all_run([run.pid, *ranks]), 10), "SIGCONT continues the launcher and its ranks")
    end.touch()
    text = run.communicate(timeout=20)[1]
    check(run.returncode == 0 and "stopped" not in text, "the job ends as usual, and the launcher reports no stopped rank", text)

    # No shell could continue the leader of a session, so the system does not stop it.
    run, ranks, end = start("not_suspended", start_new_session=True)
    run.send_signal(signal.SIGTSTP)
    time.sleep(0.5)
    check(all_run([run.pid, *ranks]), "Ctrl-Z has no effect if nobody could continue the launcher")
    end.touch()
    check(code_within(run, 20) == 0, "the job of a launcher that was not stopped ends as usual")

    # A signal that was ignored at the start stays ignored.
    run, ranks, end = start("ignored", preexec_fn=lambda: (os.setpgrp(), signal.signal(signal.SIGTSTP, signal.SIG_IGN)))
    run.send_signal(signal.SIGTSTP)
    time.sleep(0.5)
    check(all_run([run.pid, *ranks]), "Ctrl-Z has no effect if it was ignored at the start")
    end.touch()
    check(code_within(run, 20) == 0, "the job of a launcher that ignores Ctrl-Z ends as usual")


def logs():
    """Logs are complete at any time, and logs of an earlier job are kept."""
    folder = FOLDER / "logs"
    file = folder / "attempt_0" / "rank_0.log"

    def run_once(text, *words):
        return launch("--log_dir", folder, *words, program(text), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = run_once("echo the last output\nsleep 60\n")
    check(until(lambda: file.exists() and file.read_text() == "the last output\n", 10), "a line is in the log as soon as it is printed")
    run.kill()
    run.wait()
    run_once("printf 'second\\0job\\n'\n").wait()
    lines = file.read_text().split("\n")
    check(lines[0] == "the last output" and "another job begins" in lines[1] and lines[2] == "second\0job",
          "a second job's log is appended", lines)

    listing = program('[ "$RANK" = 3 ] && ls -l /proc/self/fd\nexit 0\n')
    run = launch("-n", "4", "--log_dir", FOLDER / "more", listing, stdout=subprocess.PIPE)
    check("rank_" not in run.communicate(timeout=20)[0], "ranks do not inherit log files")

    full = FOLDER / "full" / "attempt_0" / "rank_0.log"
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    run = launch("--log_dir", FOLDER / "full", program("echo one; sleep 0.2; echo two\n"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = run.communicate(timeout=20)
    check(output == "one\ntwo\n" and errors.count("No space left on device") == 1, "a full disk is reported once", output, errors)


def first_of_three():
    """If several ranks end at the same time, the launcher reports the first one."""
    pids = FOLDER / "pids"
    pids.mkdir()
    script = program(f"echo $$ >{pids}/new_$RANK; mv {pids}/new_$RANK {pids}/rank_$RANK\nsleep 60 & wait\n")
    run = launch("-n", "3", script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    check(until(lambda: len(list(pids.glob("rank_*"))) == 3, 10), "three ranks run")
    ranks = [int((pids / f"rank_{rank}").read_text()) for rank in range(3)]
    run.send_signal(signal.SIGSTOP)
    until(lambda: state(run.pid) == "T", 10)
    for rank in (2, 0, 1):
        os.kill(ranks[rank], signal.SIGKILL)
        until(lambda: state(ranks[rank]) == "Z", 10)
    run.send_signal(signal.SIGCONT)
    text = run.communicate(timeout=20)[1]
    check("rank 2" in text.split("\n")[0], "the first of three killed ranks is reported", text)


def speed():
    """The launcher takes little time to start, end and watch four processes."""
    times = []
    for _ in range(20):
        began = time.monotonic()
        launch("-n", "4", "true").wait()
        times.append(time.monotonic() - began)
    median = statistics.median(times)
    check(median < 0.2, f"four processes are started and ended in {1000 * median:.1f} ms (median of 20)")

    run = launch("-n", "4", "sleep", "3")

    def ticks():
        text = pathlib.Path(f"/proc/{run.pid}/stat").read_text()
        return sum(map(int, text[text.rfind(")") + 2:].split()[11:13]))
    time.sleep(0.5)
    before = ticks()
    time.sleep(2)
    check(ticks() - before <= 1, f"a waiting launcher uses {10 * (ticks() - before)} ms of CPU time in 2 s")
    run.wait()


for case in (output_not_read, output_read_late, reader_closes, endless_writer, inherited_signal_settings, no_process_remains,
             cleanup_process_refused, cleanup_process_killed_or_stopped, few_threads, failing_poll, failing_logs, in_namespaces, terminal_and_stops,
             rank_signalled_first, suspension, logs, first_of_three, speed):
    if (not options.only or options.only in case.__name__) and (not options.without or options.without not in case.__name__):
        began = time.monotonic()
        case()
        print(f"-- {case.__name__}: {time.monotonic() - began:.1f} s", flush=True)
sys.exit(exit_code())
