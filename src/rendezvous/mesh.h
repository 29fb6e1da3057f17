// File: rendezvous/mesh.h (internal)
// Connects each rank of a group with each other one, and with nobody else.
//
//   const MeshOptions options{.rank = 0, .size = 4, .secret = token, .address = "10.0.0.1"};
//   std::vector<std::unique_ptr<ByteStream>> peers = connect_mesh(options, exchange, limit);
//   peers[3]->write(bytes, size);  // peers[0], this rank's own, is null
//
// Two ranks of one machine are connected by a socket of the kernel's local namespace, over which no
// network carries anything, and each accepts only processes of its own user (SO_PEERCRED). Two
// ranks of different machines are connected by TCP and prove to each other by TLS that they know
// the secret; their bytes are encrypted unless `encrypt` is false. Every connection then says which
// rank it comes from and the group's own random number. The sockets that listen exist only until
// all ranks are connected: nothing can connect to a rank afterwards.
//
// A stranger's connections are dropped after their handshake has failed, has taken too long, or to
// make room for others (strangers.h). Ranks whose connection was dropped meanwhile try again.
//
// Throws IoError "process.rank-missing" with the ranks that are not connected within `limit`,
// ConfigError "process.encryption" if ranks differ in `encrypt`, IoError "rendezvous.socket", and
// what `exchange` throws. Thread rule: any thread; a call for each rank, at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/byte_stream.h"
#include "rendezvous/connection.h"

namespace hasten::rendezvous {

struct MeshOptions {
  std::int64_t rank = 0, size = 1;
  std::string secret;  // that all ranks know and no stranger does
  // The one at which other machines reach this rank.
  std::string address = "127.0.0.1";
  bool encrypt = true;
};

// Tells all ranks `own` and returns what each of them has told, by rank.
using Exchange =
    std::function<std::vector<std::string>(const std::string& question, const std::string& own)>;

std::vector<std::unique_ptr<ByteStream>> connect_mesh(const MeshOptions& options,
                                                      const Exchange& exchange,
                                                      Clock::duration limit);

}  // namespace hasten::rendezvous
