// File: tpu/commands/tpu_options.h (internal)
// The options of `hasten launch` for TPUs: their description, and how they combine with other
// options that select devices. Thread rule: confined to the table's thread.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/launch_options.h"
#include "options/sources.h"

namespace hasten::config {

void describe_tpus(Describer<LaunchOptions>& d);

// Call it after all sources have been resolved. distributed_type XLA in a file sets `tpu`, a flag
// overrides a file, and a machine with TPUs uses them if no option names a device. Adds a notice
// for TPU options that are set without TPUs. Throws ConfigError "config.contradiction" or
// "config.bad-value".
void resolve_tpu_options(OptionTable& table, LaunchOptions& options, const Environment& environment,
                         std::vector<std::string>& notices);

}  // namespace hasten::config
