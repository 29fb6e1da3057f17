#!/usr/bin/env python3
"""Checks that the library prints nothing, ends no process, and changes neither variables, signals nor limits of its process. The
files below may, with a reason.

    python3 tests/docs/check_effects.py

Reads include/hasten and src without comments and literals. It does not read src/attach, which may do all of this: `hasten anatomy` and
`hasten estimate -- PROGRAM` inject it. It does not read src/launch either: that is the launcher, which owns the terminal and forks the ranks.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_READ = ("src/attach/", "src/launch/")
EFFECTS = {
    "prints": r"std::(cout|cerr|clog)\b|\b(printf|puts|putchar|perror)\s*\(|\b(stdout|stderr)\b|\bSTD(OUT|ERR)_FILENO\b",
    "ends the process": r"\b(_exit|_Exit|exit|quick_exit)\s*\(|\bstd::(abort|terminate)\s*\(",
    "sets a handler": r"\b(atexit|at_quick_exit|set_terminate|set_unexpected)\s*\(",
    "changes signals": r"\b(signal|sigaction|sigprocmask|pthread_sigmask|sigaltstack)\s*\(",
    "changes the process": r"\b(pthread_atfork|setrlimit|mallopt|prctl|malloc_trim|sched_setaffinity|umask|chdir|setlocale|setpriority)\s*\(",
    "changes variables": r"\b(setenv|unsetenv|putenv|clearenv)\s*\(",
    "acts when it is loaded": r"\bconstructor\s*(\)\)|\]\])|\bC10_REGISTER_\w+|Registry\(\)->Register\(",
}
# File name -> the effects that it may have, and why.
REASONS = {
    "accelerator.cpp": ({"prints"}, "Accelerator::print() is called to print"),
    "argument_parser.cpp": ({"prints"}, "parse_or_report() is called to print"),
    "child_process.cpp": ({"ends the process", "changes the process"}, "in a process that it has forked"),
    "file_calls.cpp": ({"prints"}, "gives an opened file a number above those of the standard streams"),
    "file_limit.h": ({"changes the process"}, "the launcher calls it"),
    "folder_lock.cpp": ({"changes the process"}, "the first lock of a folder: a child of fork() must not keep it"),
    "forked_rank.cpp": ({"prints", "ends the process", "changes variables", "changes signals"},
                        "flushes the streams before fork(); the rest is in a process that notebook_launcher() has forked"),
    "group_signals.cpp": ({"changes signals", "changes the process"},
                          "notebook_launcher() waits for its ranks; the rest is in processes that it has forked"),
    "help.cpp": ({"prints"}, "asks for the width of the terminal"),
    "log.cpp": ({"prints"}, "the log sink, which a program can replace"),
    "memory.cpp": ({"prints", "changes the process"}, "print_gpu_utilization() and keep_freed_memory() are called for this"),
    "ncurses_screen.cpp": ({"changes signals"}, "gives ncurses the handlers of the program while it opens a screen"),
    "no_cuda.cpp": ({"prints", "ends the process"}, "another library, in a process with a TPU; its caller is C and has no errors"),
    "own_progress.cpp": ({"prints"}, "asks whether standard error is a terminal, on which a Trainer shows its run unless disable_tqdm is set"),
    "plugin.cpp": ({"prints", "changes variables"},
                   "another library, which a DryTpu loads: shows the compiler's progress; torch_tpu reads its settings from the environment alone"),
    "progress_bar.h": ({"prints"}, "a ProgressBar is made to print"),
    "progress_callback.cpp": ({"prints"}, "the Trainer's lines of numbers, which log_level turns off"),
    "results.cpp": ({"prints"}, "print_summary() is called to print"),
    "run_main.cpp": ({"prints"}, "run_main() is called to print the error that ends a program"),
    "scoped_variables.h": ({"changes variables"}, "part of tpu_module.cpp"),
    "signal_blocker.h": ({"changes signals"}, "blocks the signals of one thread while it starts another"),
    "tpu_module.cpp": ({"changes variables", "sets a handler"},
                       "another library, which is loaded to open a TPU: libtpu reads its settings from the environment alone, and torch_tpu's "
                       "threads must be ended before the process ends"),
    "standard_streams.cpp": ({"prints"}, "a program calls it to keep files away from the numbers of the standard streams"),
    "stop_on_signal.cpp": ({"changes signals"}, "a program makes a StopOnSignal, which restores the handlers"),
    "terminal_restore.cpp": ({"prints", "sets a handler", "changes signals"},
                             "a dashboard is shown: it keeps what the process prints, and restores the terminal when the process ends"),
    "thread_stack.cpp": ({"changes signals"}, "a hang is reported: a real-time signal without a handler makes each thread record its stack"),
    "training_run.cpp": ({"prints"}, "TrainingArguments::anatomy is text"),
    "watchdog.cpp": ({"prints", "ends the process"}, "the option `watchdog`: reports a hanging job and ends it, as a thread that hangs cannot throw"),
}
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', flags=re.DOTALL)


def effects_of(text):
    code = NOT_CODE.sub('""', text)
    return {effect for effect, pattern in EFFECTS.items() if re.search(pattern, code)}


def main():
    problems, used, files = [], {}, 0
    for base in ("include/hasten", "src"):
        for path in sorted(p for p in (ROOT / base).rglob("*") if p.suffix in (".h", ".cpp", ".cu")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(NOT_READ):
                continue
            files += 1
            found = effects_of(path.read_text(encoding="utf-8"))
            allowed = REASONS.get(path.name, (set(), ""))[0]
            used.setdefault(path.name, set()).update(found & allowed)
            problems += [f"{name}: {effect}" for effect in sorted(found - allowed)]
    for name, (effects, _) in REASONS.items():
        problems += [f"{name} no longer {effect}: remove the reason" for effect in sorted(effects - used.get(name, set()))]
    print("\n".join(problems + [f"{files} files checked, {len(problems)} problems"]))
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
