#!/usr/bin/env python3
"""Makes a small text classification data set from Debian's package index: the text is a package's one-line description, the label its section.

    python3 make_dataset.py                        # reads apt's list of the main component, writes train.tsv and eval.tsv here
    python3 make_dataset.py --packages Packages    # reads a Packages file instead

Nothing is random: hashes of names select and order the rows, so the same list always gives the same files.
"""
import argparse
import collections
import glob
import hashlib
import pathlib
import re
import subprocess

SEED = "hasten-debian-sections-1"
SECTIONS, TRAIN_ROWS, EVAL_ROWS, EVAL_SHARE = 10, 4000, 1000, 0.25
# The list of the release without updates, which change daily.
LISTS = "/var/lib/apt/lists/*_debian_dists_bookworm_main_binary-*_Packages*"
APT_HELPER = "/usr/lib/apt/apt-helper"


def read_packages(path):
    """Yields the fields of each package. apt's helper program reads its lists with any compression."""
    if path is None:
        found = sorted(glob.glob(LISTS))
        if not found:
            raise SystemExit(f"no list matches {LISTS}: run 'apt-get update' on Debian 12, or give --packages")
        path = found[0]
    text = pathlib.Path(path).read_bytes() if not path.endswith((".lz4", ".xz", ".gz", ".zst")) else \
        subprocess.run([APT_HELPER, "cat-file", path], check=True, stdout=subprocess.PIPE).stdout
    for paragraph in text.decode("utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Source|Section|Description): (.*)$", paragraph, re.MULTILINE))
        if "Package" in fields:
            yield fields


def rank(*parts):
    return hashlib.sha256("\0".join((SEED, *parts)).encode()).hexdigest()


def candidates(packages):
    """Returns one row for each source package and section, so that forty language packs of one program count once.

    Also returns how many packages were dropped for which reason."""
    dropped = collections.Counter()
    chosen = {}
    for fields in packages:
        package, section, text = fields["Package"], fields.get("Section", ""), fields.get("Description", "").strip()
        source = fields.get("Source", package).split(" ")[0]
        if not text or not section:
            dropped["no description or section"] += 1
        elif re.search(r"transitional|dummy", text, re.IGNORECASE):
            dropped["transitional or dummy package"] += 1
        elif (source, section) in chosen and rank(chosen[source, section][0]) < rank(package):
            dropped["same source and section"] += 1
        else:
            dropped["same source and section"] += (source, section) in chosen
            chosen[source, section] = (package, text)
    # A description with several sections has no right label. One that occurs several times in one section is a duplicate.
    same_text = collections.defaultdict(list)
    for (source, section), (package, text) in chosen.items():
        same_text[text.casefold()].append((source, section, package, text))
    rows = []
    for same in same_text.values():
        if len({section for _, section, _, _ in same}) > 1:
            dropped["same description in several sections"] += len(same)
        else:
            dropped["same description"] += len(same) - 1
            rows.append(min(same, key=lambda row: rank(row[2])))
    return rows, dropped


def write(path, rows):
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.write("text\tlabel\n")
        for _, section, _, text in rows:
            stream.write(f"{' '.join(text.split())}\t{section}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", help="a Packages file, plain or compressed as apt keeps it")
    parser.add_argument("--output", default=pathlib.Path(__file__).resolve().parent, type=pathlib.Path)
    options = parser.parse_args()

    packages = list(read_packages(options.packages))
    rows, dropped = candidates(packages)
    largest = [name for name, _ in collections.Counter(row[1] for row in rows).most_common(SECTIONS)]
    # The order does not depend on the package. Chosen packages have small hashes, so sources with many packages would come first.
    rows = sorted((row for row in rows if row[1] in largest), key=lambda row: rank("order", row[0], row[1]))
    # All rows of a source package go to the same file, since they resemble each other.
    evaluation = [row for row in rows if int(rank("split", row[0])[:8], 16) < EVAL_SHARE * 2**32]
    held_out = {row[0] for row in evaluation}
    train = [row for row in rows if row[0] not in held_out]
    write(options.output / "train.tsv", train[:TRAIN_ROWS])
    write(options.output / "eval.tsv", evaluation[:EVAL_ROWS])

    print(f"{len(packages)} packages; left out: " + ", ".join(f"{count} {why}" for why, count in dropped.items()))
    print(f"{len(rows)} rows in the {SECTIONS} largest sections: {len(train)} for training, {len(evaluation)} for evaluation")
    for name in largest:
        print(f"  {name:12s} {sum(row[1] == name for row in rows):6d} {sum(row[1] == name for row in train[:TRAIN_ROWS]):5d}"
              f" {sum(row[1] == name for row in evaluation[:EVAL_ROWS]):5d}")


if __name__ == "__main__":
    main()
