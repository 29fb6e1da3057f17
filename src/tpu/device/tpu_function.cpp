#include "tpu/device/tpu_function.h"

#include "hasten/base/error.h"

namespace hasten {

void throw_tpu_missing(const std::string& missing) {
  throw IoError("device.tpu-module",
                {.what = "hasten's module for TPUs",
                 .got = missing,
                 .hint = "run apt-get install python3-dev and build hasten again"});
}

}  // namespace hasten
