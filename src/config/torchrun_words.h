// File: config/torchrun_words.h (internal)
// What torchrun calls its options, and what Kubeflow sets for it: the same in hasten's words.
//
// Thread rule: pure functions; processes_of_word asks the system. Throws ConfigError.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// "--node-rank=2" is "--machine_rank=2"; another word stays as it is.
std::string without_torchrun_name(const std::string& word);

// The variables PET_NNODES and its fellows, in which torchrun's options come.
std::vector<Assignment> torchrun_variables(const Environment& environment);

// Several names stand for one thing (nnodes, num_machines): who says it in a weaker source under
// another name than the stronger one is not asked. Takes such assignments out of `weaker`.
void yield_to(std::vector<Assignment>& weaker, const std::vector<Assignment>& stronger);

// nproc_per_node may be a word, gpu, cpu or auto: this machine is counted, and the number put in
// its place. Gives whether there was such a word.
bool count_processes(std::vector<Assignment>& assignments);

}  // namespace hasten::config
