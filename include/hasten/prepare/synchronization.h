// File: hasten/prepare/synchronization.h
// What becomes of a prepared model's gradients, where several processes train. Internal; users meet
// it through Accelerator::no_sync, Accelerator::trigger_sync_in_backward and LocalSGD.
#pragma once

namespace hasten {

enum class Synchronization {
  at_window_end,  // they are exchanged where a window closes
  later,          // they stay here, and go out with the next that are exchanged
  now,            // they are exchanged in every backward pass
  never,          // each process goes its own way, and weights are averaged instead
};

}  // namespace hasten
