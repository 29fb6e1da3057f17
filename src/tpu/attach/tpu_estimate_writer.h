// File: tpu/attach/tpu_estimate_writer.h (internal)
// The part of the injected library (attach/attach.h) for `hasten estimate --tpu -- PROGRAM`:
// it begins the dry TPU and writes its estimate.
//
//   if (start_dry_tpu("tpu:v5e:2x2")) ...                // before main()
//   if (const auto writer = make_tpu_estimate_writer()) observers->add(writer);
//
// Thread rule: the training thread.
#pragma once

#include <memory>
#include <string>

#include "attach/report_writer.h"

namespace hasten::anatomy {

// Makes a dry TPU that exists until the process ends. The program finds it through its environment.
// Returns false if the device is not a TPU. Throws what DryTpu throws.
bool start_dry_tpu(const std::string& device);

// Returns the writer of the estimate of this process's dry TPU, or null if it has none.
std::shared_ptr<ReportWriter> make_tpu_estimate_writer();

}  // namespace hasten::anatomy
