# hasten reads the location of LibTorch from the file hasten-torch, without loading it.
found=$(hasten env --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["libtorch"]["folder"])')
[ -e "$found/lib/libtorch_cpu.so" ] && echo 'LibTorch is there'
hasten env | sed -n '/^- libtorch/,/^- platform/p' | sed -E 's/version: [0-9]+\.[0-9]+\.[0-9]+.*/version: N/; s/folder: .*/folder: F/; /platform/d'
