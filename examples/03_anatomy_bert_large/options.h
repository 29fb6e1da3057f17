#pragma once

#include <cstdint>
#include <string>

#include "hasten/base/error.h"
#include "hasten/machine/gpus.h"

struct Options {
  std::int64_t steps = 0;            // optimizer steps; 0 means one epoch of 128 steps
  const hasten::Gpu* gpu = nullptr;  // the GPU to predict for, or null
  bool page = false;
};

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--page") {
      options.page = true;
    } else if (word == "--steps" && std::atol(value.c_str()) > 0) {
      options.steps = std::atol(argv[++i]);
    } else if (word == "--device" && !value.empty()) {
      options.gpu = &hasten::find_gpu(argv[++i]);
      if (options.steps == 0) options.steps = 2;
    } else {
      throw hasten::ConfigError("config.unknown-key",
                                {.what = "unknown or incomplete argument " + word,
                                 .expected = "--steps N, --device cuda:NAME or --page"});
    }
  }
  return options;
}
