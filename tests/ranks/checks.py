"""Checks that are told as they are made, and go on after one that fails."""
failures = 0


def check(holds, what, *shown):
    """`shown` is printed where it does not hold."""
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures += 1
        print(*shown, sep="\n--\n", flush=True)


def exit_code():
    """After the number of failures is told."""
    print(f"{failures} failures")
    return 1 if failures else 0
