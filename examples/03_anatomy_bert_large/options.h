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
    const std::string argument = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--page") {
      options.page = true;
    } else if (argument == "--steps" && std::atol(value.c_str()) > 0) {
      options.steps = std::atol(argv[++i]);
    } else if (argument == "--device" && !value.empty()) {
      options.gpu = &hasten::find_gpu(argv[++i]);
      if (options.steps == 0) options.steps = 2;
    } else {
      throw hasten::ConfigError("config.unknown-key",
                                {.what = "unknown or incomplete argument " + argument,
                                 .expected = "--steps N, --device cuda:NAME or --page"});
    }
  }
  return options;
}
