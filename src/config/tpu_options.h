// File: config/tpu_options.h (internal)
// Of the options of `hasten launch` those for TPUs: described, and settled with what else says on
// which devices processes run. Thread rule: confined to the table's thread.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten::config {

// Why what Accelerate does over ssh, for all machines of a pod at once, is refused.
inline constexpr const char* kEachMachine =
    "hasten launch is started on each machine, and hasten tpu-config may start it there";

inline constexpr const char* kOwnUser = "processes run as the user who starts them";

void describe_tpus(Describer<LaunchOptions>& d);

// Once all sources are resolved: distributed_type XLA in a file is `tpu`, a flag is stronger than a
// file, and who says nothing gets the TPUs of a TPU machine. Throws ConfigError
// "config.contradiction", "config.bad-value"; what is for TPUs and has none is told.
void settle_tpus(OptionTable& table, LaunchOptions& options, const Environment& environment,
                 std::vector<std::string>& notices);

}  // namespace hasten::config
