// File: process/gloo_transport.h (internal)
// What carries Gloo's messages between the ranks of a group: connections of the job alone
// (rendezvous/mesh.h) instead of Gloo's own TCP, whose ports take anybody who connects for a rank.
// Gloo's algorithms, and c10d's backend above them, are LibTorch's.
//
//   auto device = gloo_device({.rank = 0, .size = 2, .secret = token}, *store, 10min);
//   options->devices.push_back(device);
//   c10d::ProcessGroupGloo group(store, 0, 2, options);
//
// A rank that ends fails the messages that wait for it; one message that waits for too long fails
// all of the group's, as with Gloo's own transport: IoError "process.rank-missing". Time during
// which the process is suspended does not count. Thread rule: as c10d's; each group has a thread of
// its own that reads, and takes no signals.
#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rendezvous/mesh.h"

namespace gloo::transport {
class Device;
}

namespace hasten {

// Connects the ranks, within the timeout: all of them call it, with a store of the group alone. The
// device is for one group. Throws as connect_mesh() does.
std::shared_ptr<gloo::transport::Device> gloo_device(const rendezvous::MeshOptions& options,
                                                     c10d::Store& store,
                                                     std::chrono::milliseconds timeout);

}  // namespace hasten
