"""Collects the cases of yaml-test-suite in cases.json, beside this file.

    git clone --branch data-2022-01-17 https://github.com/yaml/yaml-test-suite suite
    python3 collect.py suite

Each case has an id, the YAML text, whether a parser must refuse it, and the JSON text with the same content, if JSON can express it.
"""
import json
import sys
from pathlib import Path


def text_of(path):
    return path.read_bytes().decode("utf-8")


def main():
    suite, cases = Path(sys.argv[1]), []
    for file in sorted(suite.rglob("in.yaml")):
        if file.relative_to(suite).parts[0] in ("name", "tags"):  # links to the same cases
            continue
        case = {"id": "/".join(file.relative_to(suite).parts[:-1]), "yaml": text_of(file), "invalid": (file.parent / "error").exists()}
        if (file.parent / "in.json").exists():
            case["json"] = text_of(file.parent / "in.json")
        cases.append(case)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (Path(__file__).parent / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


main()
