// File: process/backend/gloo_transport.h (internal)
// Carries Gloo's messages between the ranks of a group over connections that only the job's ranks
// have (rendezvous/mesh.h). Gloo's own TCP transport would accept any process that connects to its
// ports as a rank. Gloo's algorithms, and c10d's backend above them, come from LibTorch unchanged.
//
//   auto device = gloo_device({.rank = 0, .size = 2, .secret = token}, *store, 10min);
//   options->devices.push_back(device);
//   c10d::ProcessGroupGloo group(store, 0, 2, options);
//
// If a rank ends, the messages that wait for it fail with IoError "process.rank-missing". If one
// message waits for too long, all messages of the group fail with the same code, as with Gloo's own
// transport. Time in which this process is suspended does not count. Thread rule: as for c10d. Each
// group has its own thread for reading (process/backend/link_loop.h), which blocks all signals.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rendezvous/mesh.h"

namespace gloo::transport {
class Device;
}

namespace hasten {

// Connects the ranks within the timeout. All ranks must call it, with a store that only this group
// uses. The device serves one group only. Throws the same errors as connect_mesh().
std::shared_ptr<gloo::transport::Device> gloo_device(const rendezvous::MeshOptions& options,
                                                     c10d::Store& store,
                                                     std::chrono::milliseconds timeout);

}  // namespace hasten
