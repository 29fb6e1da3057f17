#!/usr/bin/env bash
# subdirectory.sh LIBTORCH: checks that a project with add_subdirectory(hasten) can be configured, excludes hasten's tests, examples and benchmarks,
# and keeps its own build type.
set -euo pipefail
libtorch=$1 source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { cat "$work/log"; echo "subdirectory: $*"; exit 1; }

mkdir "$work/project"
cp "$source"/tests/install/project/core.cpp "$source"/examples/standalone/main.cpp "$work/project"
cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
add_subdirectory($source hasten)
add_executable(uses_hasten main.cpp)
target_link_libraries(uses_hasten PRIVATE hasten::hasten)
add_executable(uses_core core.cpp)
target_link_libraries(uses_core PRIVATE hasten::core)
EOF
cmake -G Ninja -S "$work/project" -B "$work/build" -DHASTEN_LIBTORCH="$libtorch" >"$work/log" 2>&1 || fail "configuring failed"
for folder in tests examples benchmarks; do [ ! -e "$work/build/hasten/$folder" ] || fail "hasten's $folder are built"; done
grep -q '^CMAKE_BUILD_TYPE:STRING=$' "$work/build/CMakeCache.txt" || fail "hasten sets the build type of the project"
echo ok
