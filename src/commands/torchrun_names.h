// File: commands/torchrun_names.h (internal)
// Translates to hasten's options: torchrun's options, the variables that Kubeflow sets for
// torchrun, short names of options, and flags of Accelerate that have a different name in its
// files.
//
// Thread rule: pure functions, except that resolve_process_count inspects this machine. Throws
// ConfigError.
#pragma once

#include <string>
#include <vector>

#include "options/sources.h"

namespace hasten::config {

// Turns "--node-rank=2" into "--machine_rank=2" and "-n" into "--num_processes"; returns other
// arguments unchanged.
std::string to_hasten_name(const std::string& argument);

// Returns the options of torchrun that variables set: PET_NNODES and so on.
std::vector<Assignment> torchrun_variables(const Environment& environment);

// Several names can set the same thing, such as nnodes and num_machines, or rdzv_endpoint and
// main_process_ip. Removes from each source the names of what a stronger source sets. The sources
// are in order, weakest first; contradictions within one source remain.
void remove_overridden_synonyms(std::vector<std::vector<Assignment>>& sources);

// Replaces gpu, cpu or auto as the value of nproc_per_node by the number of processes that fits
// this machine. Returns true if it has replaced a value.
bool resolve_process_count(std::vector<Assignment>& assignments);

}  // namespace hasten::config
