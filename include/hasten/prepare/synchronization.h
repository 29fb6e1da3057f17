// File: hasten/prepare/synchronization.h
// When the gradients of a prepared model are exchanged between processes. Internal; users choose it
// with Accelerator::no_sync, Accelerator::trigger_sync_in_backward and LocalSGD.
#pragma once

namespace hasten {

enum class Synchronization {
  at_window_end,  // when an accumulation window closes
  later,          // not in this scope; the next exchange includes them
  now,            // in every backward pass
  never,          // each process trains on its own, and weights are averaged instead
};

}  // namespace hasten
