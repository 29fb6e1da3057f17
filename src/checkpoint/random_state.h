// File: checkpoint/random_state.h (internal)
// LibTorch's generators, of this process and of all together (random_states in
// hasten/checkpoint/training_state.h): "cpu", and "cuda.N" of each GPU, as the bytes
// that LibTorch keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "hasten/formats/tensor_dict.h"

namespace hasten {

TensorDict random_state();
void restore_random_state(const TensorDict& state);

// As one dictionary: rank 0's have their own names, those of rank 3 stand behind "rank3.".
TensorDict joined_random_states(const std::vector<TensorDict>& of_ranks);
// One rank's of them; empty where the dictionary has none of that rank.
TensorDict random_state_of(const TensorDict& joined, std::int64_t rank);

}  // namespace hasten
