// File: prepare/lstm_autocast.h (internal)
// Makes LSTMs work under autocast on CPUs for which oneDNN has no LSTM in the 16-bit type.
//
//   if (device == at::kCPU && !has_lstm_kernel(at::kBFloat16)) replace_lstm_under_autocast();
//
// Under autocast, LibTorch gives every LSTM on the CPU to oneDNN in the 16-bit type. It does not
// ask whether oneDNN supports the type on this CPU. Where oneDNN does not, the call throws "could
// not create a primitive descriptor for the LSTM forward propagation primitive". LibTorch's own
// implementation of the LSTM works on every CPU.
#pragma once

#include <c10/core/ScalarType.h>

namespace hasten {

// Returns whether oneDNN has an LSTM of this type, bfloat16 or float16, for this CPU. The variable
// ONEDNN_MAX_CPU_ISA counts. Thread rule: any thread.
bool has_lstm_kernel(at::ScalarType type);

// From now on, an LSTM under autocast on the CPU uses LibTorch's own implementation, as long as the
// process lasts. During such a call, other threads do not use oneDNN either. Thread rule: any
// thread.
void replace_lstm_under_autocast();

}  // namespace hasten
