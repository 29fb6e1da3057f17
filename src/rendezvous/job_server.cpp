#include "rendezvous/job_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/descriptor.h"
#include "base/poll_timeout.h"
#include "base/running_clock.h"
#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/connection.h"
#include "rendezvous/pending_connections.h"
#include "rendezvous/poller.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_table.h"

namespace hasten::rendezvous {
namespace {

constexpr auto kTick = std::chrono::seconds(1);
// Limits the time of one pass. So the coordinator's messages are late by at most this time and one
// request, no matter how many requests wait.
constexpr auto kMaxPassTime = std::chrono::milliseconds(100);
constexpr int kMaxAccepted = 64;  // Connections accepted in one pass.
constexpr auto kLastMessagesTimeout = std::chrono::milliseconds(200);
constexpr auto kReportInterval = std::chrono::minutes(1);
constexpr std::uint64_t kWakeId = 0, kListenerId = 1;
constexpr int kFirstClientId = 2;

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

class JobServer::Loop {
 public:
  explicit Loop(ServerOptions options)
      : context_(Side::server, options.token),
        listener_(listen_on(options.loopback_only, options.port)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        store_([this](int id, const std::string& message) { send(id, message); }),
        on_shortage_(std::move(options.on_shortage)) {
    if (!poller_.watch(wake_.get(), kWakeId, POLLIN)) throw_poll_error();
    if (!poller_.watch(listener_.get(), kListenerId, POLLIN)) throw_poll_error();
    if (options.coordinator) {
      coordinator_.emplace(
          *options.coordinator,
          [this](int id, const nlohmann::json& message) { send(id, message.dump()); },
          [this] { store_.clear(); });
    }
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int port() const { return port_of(listener_.get()); }

  void run() {
    while (!stop_) {
      const bool has_work = !unfinished_.empty() || store_.has_ready_request();
      serve_ready(poller_.wait(has_work ? 0 : longest_wait()));
      if (clear_.exchange(false)) store_.clear();
      tick(Clock::now());
      drop_closed(Clock::now());
    }
    send_last_messages();
  }

  void request(std::atomic<bool>& flag) {
    flag = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }
  std::atomic<bool> stop_ = false, clear_ = false, all_disconnected_ = false;

 private:
  enum class Role { unknown, store, agent };
  struct Client {
    std::unique_ptr<Connection> connection;
    std::string address, server_address;
    Role role = Role::unknown;
    short watched = POLLIN;
  };

  [[noreturn]] static void throw_poll_error() {
    throw IoError("rendezvous.socket",
                  {.what = "waiting for connections", .got = std::strerror(errno)});
  }

  int longest_wait() {
    auto until = is_listening_ ? Clock::now() + std::chrono::hours(1) : next_tick_;
    if (coordinator_) until = std::min(until, next_tick_);
    if (const auto deadline = store_.next_deadline()) {
      // A RunningClock must be read regularly.
      const Clock::duration left = *deadline - store_clock_.now();
      until = std::min(until, Clock::now() + std::min<Clock::duration>(left, kTick));
    }
    if (const auto deadline = pending_.next_deadline()) until = std::min(until, *deadline);
    return poll_timeout(until);
  }

  // Requests beyond the time limit are handled in the next pass: the poller reports them again.
  void serve_ready(const std::vector<std::uint64_t>& ready) {
    const auto end = Clock::now() + kMaxPassTime;
    for (const int id : std::exchange(unfinished_, {})) serve(id, end);
    for (const std::uint64_t id : ready) {
      if (id == kWakeId) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
      } else if (id == kListenerId) {
        accept_some(end);
      } else if (Clock::now() < end) {
        serve(static_cast<int>(id), end);
      }
    }
    while (store_.has_ready_request() && Clock::now() < end) store_.answer_ready_request();
  }

  void accept_some(Clock::time_point end) {
    // The number is limited, so that existing connections are served too.
    for (int i = 0; i < kMaxAccepted; ++i) {
      const int socket = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket >= 0) {
        admit(socket, end);
      } else if (is_shortage(errno)) {
        return stop_listening(errno);
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  // Without this, the listener would be reported as ready all the time, although nothing can be
  // accepted.
  void stop_listening(int error) {
    poller_.remove(listener_.get());
    is_listening_ = false;
    next_tick_ = std::min(next_tick_, Clock::now() + kTick);
    const auto now = Clock::now();
    if (!on_shortage_ || now < next_report_) return;
    next_report_ = now + kReportInterval;
    on_shortage_(str("cannot accept more connections of ranks: ", clients_.size(), " are open (",
                     std::strerror(error), "); new connections wait until one is closed"));
  }

  void resume_listening() {
    if (!is_listening_) is_listening_ = poller_.watch(listener_.get(), kListenerId, POLLIN);
  }

  void admit(int socket, Clock::time_point end) {
    if (const auto id = pending_.connection_to_evict()) drop(*id, Clock::now());
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Client client{.connection = std::make_unique<Connection>(socket, context_),
                  .address = peer_address(socket),
                  .server_address = local_address(socket)};
    const int id = next_id_++;
    if (!poller_.watch(socket, static_cast<std::uint64_t>(id), POLLIN)) return;
    pending_.add(id, client.address, Clock::now());
    clients_.emplace(id, std::move(client));
    serve(id, end);
  }

  void serve(int id, Clock::time_point end) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    Client& client = found->second;
    client.connection->advance();
    try {
      do {
        if (const auto message = client.connection->next()) handle_message(id, client, *message);
      } while (client.connection->has_message() && Clock::now() < end);
    } catch (const std::exception&) {  // The client knows the token but breaks the protocol.
      violators_.insert(id);
    }
    if (client.connection->is_authenticated()) {
      pending_.remove(id);
    } else if (client.connection->received_valid_message()) {
      pending_.mark_valid(id);
    }
    schedule_next_work(id, client);
  }

  // Decides what to do next with a connection that was read or written.
  void schedule_next_work(int id, Client& client) {
    const Connection& connection = *client.connection;
    if (violators_.contains(id)) return;
    if (connection.has_message()) {
      unfinished_.insert(id);
    } else if (!connection.is_open()) {
      closed_.insert(id);
    }
    const short events = connection.events();
    if (events == client.watched) return;
    if (poller_.change(connection.descriptor(), static_cast<std::uint64_t>(id), events)) {
      client.watched = events;
    } else {
      unfinished_.insert(id);  // served in the next pass without being reported
    }
  }

  void send(int id, const std::string& message) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    found->second.connection->send(message);
    schedule_next_work(id, found->second);
  }

  void handle_message(int id, Client& client, const std::string& message) {
    if (client.role == Role::unknown) return set_role(id, client, message);
    if (client.role == Role::store) return store_.handle(id, message, store_clock_.now());
    coordinator_->receive(id, agent_message_of(message), client.address, client.server_address,
                          Clock::now());
    all_disconnected_ = coordinator_->all_disconnected();
  }

  // A rank with another protocol version receives this server's version before it is dropped.
  void set_role(int id, Client& client, const std::string& message) {
    if (message == kAgentGreeting && coordinator_) {
      client.role = Role::agent;
      return;
    }
    client.connection->send(kStoreGreeting);
    client.role = message == kStoreGreeting ? Role::store : Role::unknown;
    if (client.role == Role::unknown) violators_.insert(id);
  }

  void tick(Clock::time_point now) {
    store_.tick(store_clock_.now());
    if (now < next_tick_) return;
    next_tick_ = now + kTick;
    resume_listening();
    if (!coordinator_) return;
    coordinator_->tick(now);
    all_disconnected_ = coordinator_->all_disconnected();
  }

  void drop_closed(Clock::time_point now) {
    for (const int id : pending_.expired(now)) drop(id, now);
    for (const int id : std::exchange(violators_, {})) drop(id, now);
    for (const int id : std::exchange(closed_, {})) drop(id, now);
    if (coordinator_) all_disconnected_ = coordinator_->all_disconnected();
  }

  void drop(int id, Clock::time_point now) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    const Client client = std::move(found->second);
    clients_.erase(found);
    poller_.remove(client.connection->descriptor());
    pending_.remove(id);
    unfinished_.erase(id);
    store_.remove_connection(id);
    if (client.role == Role::agent) notify_coordinator(id, *client.connection, now);
    resume_listening();
  }

  // A launcher that ends closes its connection properly. The network may cause any other failure.
  void notify_coordinator(int id, const Connection& connection, Clock::time_point now) {
    if (connection.is_open())
      return coordinator_->on_disconnect(
          id, "it sent a message that this version of hasten cannot read", now);
    if (connection.closed_by_peer())
      return coordinator_->on_disconnect(id, connection.close_reason(), now);
    coordinator_->on_connection_failure(id);
  }

  void send_last_messages() {
    const auto deadline = Clock::now() + kLastMessagesTimeout;
    for (auto& [id, client] : clients_) {
      if (client.connection->is_authenticated()) client.connection->flush(deadline);
    }
  }

  SecureContext context_;
  Descriptor listener_, wake_;
  Poller poller_;
  StoreTable store_;
  RunningClock store_clock_;  // Requests expire only while this process runs.
  std::optional<Coordinator> coordinator_;
  std::function<void(const std::string&)> on_shortage_;
  std::unordered_map<int, Client> clients_;
  PendingConnections pending_;
  std::set<int> unfinished_;  // Connections with messages left over from the last pass.
  std::set<int> violators_;   // Connections that know the token but break the protocol.
  std::set<int> closed_;
  int next_id_ = kFirstClientId;
  bool is_listening_ = true;
  Clock::time_point next_tick_ = Clock::now() + kTick;
  Clock::time_point next_report_{};
};

JobServer::JobServer(ServerOptions options) : loop_(std::make_unique<Loop>(std::move(options))) {
  port_ = loop_->port();
  thread_ = start_required_thread("launch.start", "serves the job's keys and values",
                                  [this] { loop_->run(); });
}

JobServer::~JobServer() {
  loop_->request(loop_->stop_);
  thread_.join();
}

void JobServer::clear() { loop_->request(loop_->clear_); }

bool JobServer::all_disconnected() const { return loop_->all_disconnected_; }

}  // namespace hasten::rendezvous
