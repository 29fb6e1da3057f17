// File: rendezvous/mesh.h (internal)
// Connects each rank of a group with every other rank, and with nobody else.
//
//   const MeshOptions options{.rank = 0, .size = 4, .secret = token, .address = "10.0.0.1"};
//   std::vector<std::unique_ptr<ByteStream>> peers = connect_mesh(options, exchange, 60s);
//   peers[3]->write(bytes, size);  // peers[0], this rank's own, is null
//
// Ranks on one machine are connected by Unix sockets in the abstract namespace, so their bytes do
// not cross a network. Each socket accepts only processes of its own user (SO_PEERCRED). Ranks on
// different machines are connected by TCP and prove by TLS that they know the secret; their bytes
// are encrypted unless `encrypt` is false. Both sides then send their rank and the group's random
// number. The listening sockets are closed once all ranks are connected, so nothing can connect to
// a rank afterwards.
//
// A connection that is not yet authenticated is dropped when its handshake fails or takes too long,
// or to make room for others (pending_connections.h). A rank whose connection is dropped tries
// again.
//
// Throws IoError "process.rank-missing" with the ranks that are not connected within `limit`,
// ConfigError "process.encryption" if `encrypt` differs between ranks, IoError "rendezvous.socket"
// and "rendezvous.tls", and what `exchange` throws. Thread rule: any thread; all ranks call it at
// the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "rendezvous/byte_stream.h"
#include "rendezvous/connection.h"

namespace hasten::rendezvous {

struct MeshOptions {
  std::int64_t rank = 0, size = 1;
  std::string secret;  // Only the ranks of the job know it.
  // The address at which other machines reach this rank.
  std::string address = "127.0.0.1";
  bool encrypt = true;
};

// Sends `own` to all ranks and returns what each of them sent, by rank. `key` names the
// exchange.
using Exchange =
    std::function<std::vector<std::string>(const std::string& key, const std::string& own)>;

HASTEN_INTERNAL_API std::vector<std::unique_ptr<ByteStream>> connect_mesh(
    const MeshOptions& options, const Exchange& exchange, Clock::duration limit);

}  // namespace hasten::rendezvous
