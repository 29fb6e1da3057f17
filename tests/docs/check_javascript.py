#!/usr/bin/env python3
"""Checks the scripts of the report pages with Oxlint.

    python3 tests/docs/check_javascript.py

A page has the common functions of page.js, and then its own script. So each page is checked as one file, which shows names that
neither of the two defines. The Oxlint is the one that tools/fetch_oxlint.sh has put into the cache.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = ROOT / "src/base/web/page.js"
RULES = {
    "env": {"browser": True},
    "categories": {"correctness": "error", "suspicious": "error"},
    "rules": {
        "no-undef": "error",
        "no-var": "error",
        "eqeqeq": "error",
        "prefer-const": "error",
        # A page need not use every common function.
        "no-unused-vars": ["error", {"varsIgnorePattern": "^(%s)$"}],
        # toSorted is too new for some browsers, and the lists that are sorted are copies.
        "unicorn/no-array-sort": "off",
    },
}


def oxlint():
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HASTEN_CACHE") or caches / "hasten") / "oxlint-1.89.0/bin/oxlint"


def findings(script, common, folder):
    """Returns a text for each finding in the page of `script`, with the place in the source file."""
    page = folder / script.name
    page.write_text(common + script.read_text(encoding="utf-8"), encoding="utf-8")
    run = subprocess.run([oxlint(), "--config", folder / "rules.json", "--format", "json", page], capture_output=True, text=True)
    lines = common.count("\n")
    for each in json.loads(run.stdout)["diagnostics"]:
        line = each["labels"][0]["span"]["line"]
        place = f"{COMMON.relative_to(ROOT)}:{line}" if line <= lines else f"{script.relative_to(ROOT)}:{line - lines}"
        yield f"{place}: {each['message']} ({each['code']})"


def main():
    if not oxlint().exists():
        print("skipped: Oxlint is missing (tools/fetch_oxlint.sh)")
        return 0
    common = COMMON.read_text(encoding="utf-8")
    names = [line.split()[1].split("(")[0] for line in common.splitlines() if line.startswith(("const ", "function "))]
    rule = RULES["rules"]["no-unused-vars"][1]
    rule["varsIgnorePattern"] %= "|".join(names)
    scripts = [path for path in sorted((ROOT / "src").rglob("*.js")) if path != COMMON]
    words = re.findall(r"\w+", common + "".join(path.read_text(encoding="utf-8") for path in scripts))
    unused = [name for name in names if words.count(name) < 2]
    problems = {f"{COMMON.relative_to(ROOT)}: no page uses {name}" for name in unused}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.json").write_text(json.dumps(RULES), encoding="utf-8")
        for script in scripts:
            problems.update(findings(script, common, Path(folder)))
    for problem in sorted(problems):
        print(problem)
    print(f"{len(scripts)} pages checked, {len(problems)} problems")
    return 1 if problems or not scripts else 0


if __name__ == "__main__":
    sys.exit(main())
