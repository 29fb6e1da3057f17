// File: checkpoint/gradient_bytes.h (internal)
// Counts the bytes of the gradients of an open accumulation window, for the check of the free space
// before a save.
//
//   const std::uintmax_t bytes =
//       bytes_of_gradients(group, gradient_tensors(parameters), /*folder_of_each_machine=*/false);
//
// It is a collective. Thread rule: the training thread, outside of a backward pass.
#pragma once

#include <cstdint>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/process/group.h"

namespace hasten {

// Returns the bytes of the tensors that the processes of this machine save together or, if all
// machines save into one folder, the processes of all machines. `own` has those of this process.
std::uintmax_t bytes_of_gradients(const Group& group, const TensorDict& own,
                                  bool folder_of_each_machine);

}  // namespace hasten
