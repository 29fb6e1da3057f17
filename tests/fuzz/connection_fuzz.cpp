// A libFuzzer target for the sockets of a job's server. It has three parts: bytes of a client
// without the token, messages in pieces of any size from a client with the token, and any messages
// of such a client to the server. CMakeLists.txt builds it with OpenSSL and without LibTorch.
//
// The first byte selects the part. The target checks that a Connection returns exactly the framed
// messages, that it never authenticates a client without the token, and that the server keeps
// serving other clients.
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "rendezvous/job_server.h"
#include "rendezvous/message.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

namespace {

const std::string kToken = "the token of a fuzzer 0123456789";

void require(bool holds) {
  if (!holds) std::abort();
}

// Removes and returns the next chunk of the input. The byte before the chunk is its size.
std::string_view take_chunk(std::string_view& input) {
  const auto size = static_cast<std::uint8_t>(input[0]);
  const std::string_view chunk = input.substr(1, size);
  input.remove_prefix(1 + chunk.size());
  return chunk;
}

const SecureContext& context(Side side) {
  static const SecureContext server(Side::server, kToken), client(Side::client, kToken);
  return side == Side::server ? server : client;
}

// A server's Connection and the client's socket.
struct SocketPair {
  std::array<int, 2> files = [] {
    std::array<int, 2> made{};
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made.data()) == 0);
    return made;
  }();
  Connection connection{files[0], context(Side::server)};
  Descriptor other{files[1]};
};

void feed_unauthenticated(std::string_view input) {
  SocketPair sockets;
  while (!input.empty()) {
    const std::string_view chunk = take_chunk(input);
    [[maybe_unused]] const ssize_t sent =
        send(sockets.other.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL);
    sockets.connection.advance();
  }
  require(!sockets.connection.is_authenticated() && !sockets.connection.has_message());
}

// Returns the messages of complete frames in `bytes`, up to one that is too long.
std::vector<std::string> parse_frames(std::string_view bytes, bool& too_long) {
  std::vector<std::string> messages;
  too_long = false;
  while (bytes.size() >= 8) {
    const auto size = static_cast<std::uint64_t>(Unpacker(bytes.substr(0, 8)).number());
    too_long = size > kMaxMessageBytes;
    if (too_long || size > bytes.size() - 8) break;
    messages.emplace_back(bytes.substr(8, size));
    bytes.remove_prefix(8 + size);
  }
  return messages;
}

struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
};

// The client knows the token, and the input contains its frames.
void feed_authenticated(std::string_view input) {
  SocketPair sockets;
  const std::unique_ptr<SSL, FreeTls> tls(SSL_new(context(Side::client).get()));
  SSL_set_fd(tls.get(), sockets.other.get());
  while (SSL_connect(tls.get()) != 1) sockets.connection.advance();
  sockets.connection.advance();
  require(sockets.connection.is_authenticated());
  std::string sent;
  std::vector<std::string> messages;
  while (!input.empty() && sockets.connection.is_open()) {
    const std::string_view chunk = take_chunk(input);
    if (chunk.empty()) continue;
    require(SSL_write(tls.get(), chunk.data(), static_cast<int>(chunk.size())) > 0);
    sent += chunk;
    sockets.connection.advance();
    while (auto message = sockets.connection.next()) messages.push_back(std::move(*message));
  }
  bool too_long = false;
  require(messages == parse_frames(sent, too_long));
  require(sockets.connection.is_open() != too_long);
}

// Sends random bytes of a client without the token, and messages of a client with the token, to a
// server.
void feed_server(std::string_view input) {
  JobServer server(
      {.token = kToken, .coordinator = CoordinatorSettings{.min_machines = 2, .max_machines = 2}});
  const Endpoint endpoint{.host = "127.0.0.1", .port = server.port()};
  StoreClient other(endpoint, kToken, 20s);
  if (!input.empty()) {
    const Descriptor unauthenticated(connect_to(endpoint, 20).socket);
    const std::string_view noise = take_chunk(input);
    send(unauthenticated.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  Connection authenticated(connect_to(endpoint, 20).socket, context(Side::client));
  while (!input.empty()) authenticated.send(take_chunk(input));
  authenticated.flush(Clock::now() + 20s);
  other.set("the server", "still serves");
  require(other.get({"the server"}, 20s)[0] == "still serves");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               std::min<std::size_t>(size - 1, 4096));
  switch (data[0] % 3) {
    case 0:
      feed_unauthenticated(bytes);
      break;
    case 1:
      feed_authenticated(bytes);
      break;
    default:
      feed_server(bytes);
  }
  return 0;
}
