# The command lists the contents of exported models.
models=$data/exported
hasten inspect "$models/mlp.pt2"
hasten inspect "$models/mlp.pt2" --json | python3 -c 'import json, sys; print(sorted(json.load(sys.stdin)))'
hasten inspect "$models/drop_path.pt2" | tail -3
hasten inspect
hasten inspect missing.pt2
hasten inspect "$models/mlp.safetensors"
hasten inspect "$models/mlp.pt2" --jsn
hasten inspect --help | head -1
