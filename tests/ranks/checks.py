"""Checks that print their result and continue after a failure."""
failures = 0


def check(holds, what, *shown):
    """Prints `shown` if the check fails."""
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures += 1
        print(*shown, sep="\n--\n", flush=True)


def exit_code():
    """Prints the number of failures and returns the exit code."""
    print(f"{failures} failures")
    return 1 if failures else 0
