// File: checkpoint/random_state.h (internal)
// The states of this process's LibTorch generators ("cpu", "cuda.N" for each GPU, "tpu" if one is
// open) as the bytes that LibTorch keeps. random_states() in
// hasten/checkpoint/detail/training_state.h returns the states of all processes.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

TensorDict random_state();
void restore_random_state(const TensorDict& state);
// Sets the generator to the state of that name. Does nothing if there is none. Throws DataError
// "checkpoint.random-state" if the generator cannot have this state.
void restore_generator(at::Generator generator, const TensorDict& state, const std::string& name);

// Merges the states: rank 0's states keep their names, and rank 3's get the prefix "rank3.".
TensorDict merge_random_states(const std::vector<TensorDict>& of_ranks);
// Returns one rank's states; empty if there are none.
TensorDict random_state_of(const TensorDict& merged, std::int64_t rank);

}  // namespace hasten
