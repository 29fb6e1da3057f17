// File: checkpoint/random_state.h (internal)
// The states of this process's LibTorch generators ("cpu", "cuda.N" of each GPU, "tpu" if one is
// open) as the bytes that LibTorch keeps. random_states() in hasten/checkpoint/training_state.h
// returns those of all processes.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/formats/tensor_dict.h"

namespace hasten {

TensorDict random_state();
void restore_random_state(const TensorDict& state);
// Gives the generator the state of that name. If there is none, the generator is left alone.
void restore_generator(at::Generator generator, const TensorDict& state, const std::string& name);

// Joins the states: those of rank 0 keep their names, those of rank 3 get the prefix "rank3.".
TensorDict joined_random_states(const std::vector<TensorDict>& of_ranks);
// Returns one rank's states; empty if there are none.
TensorDict random_state_of(const TensorDict& joined, std::int64_t rank);

}  // namespace hasten
