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
#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/connection.h"
#include "rendezvous/poller.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_table.h"
#include "rendezvous/strangers.h"

namespace hasten::rendezvous {
namespace {

constexpr auto kTick = std::chrono::seconds(1);
// Limits one pass: the coordinator's messages are late by at most this and one request, however
// many wait.
constexpr auto kLongestPass = std::chrono::milliseconds(100);
constexpr int kMostAccepted = 64;  // Connections accepted in one pass.
constexpr auto kForLastMessages = std::chrono::milliseconds(200);
constexpr auto kBetweenReports = std::chrono::minutes(1);
constexpr std::uint64_t kWakeId = 0, kListenerId = 1;
constexpr int kFirstGuestId = 2;

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
    if (!poller_.watch(wake_.get(), kWakeId, POLLIN)) refuse_to_start();
    if (!poller_.watch(listener_.get(), kListenerId, POLLIN)) refuse_to_start();
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
      const bool has_work = !unfinished_.empty() || store_.has_woken();
      serve_ready(poller_.wait(has_work ? 0 : longest_wait()));
      if (clear_.exchange(false)) store_.clear();
      tick(Clock::now());
      drop_gone(Clock::now());
    }
    send_last_messages();
  }

  void ask(std::atomic<bool>& wish) {
    wish = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = write(wake_.get(), &one, sizeof one);
  }
  std::atomic<bool> stop_ = false, clear_ = false, all_gone_ = false;

 private:
  enum class Role { unknown, store, agent };
  struct Guest {
    std::unique_ptr<Connection> connection;
    std::string address, reached_at;
    Role role = Role::unknown;
    short watched = POLLIN;
  };

  [[noreturn]] static void refuse_to_start() {
    throw IoError("rendezvous.socket",
                  {.what = "waiting for connections", .got = std::strerror(errno)});
  }

  int longest_wait() const {
    auto until = is_listening_ ? Clock::now() + std::chrono::hours(1) : next_tick_;
    if (coordinator_) until = std::min(until, next_tick_);
    if (const auto deadline = store_.next_deadline()) until = std::min(until, *deadline);
    if (const auto deadline = strangers_.next_deadline()) until = std::min(until, *deadline);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  // Requests beyond the time limit are handled in the next pass: the poller reports them again.
  void serve_ready(const std::vector<std::uint64_t>& ready) {
    const auto end = Clock::now() + kLongestPass;
    for (const int id : std::exchange(unfinished_, {})) serve(id, end);
    for (const std::uint64_t id : ready) {
      if (id == kWakeId) {
        std::uint64_t woken = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &woken, sizeof woken);
      } else if (id == kListenerId) {
        accept_some(end);
      } else if (Clock::now() < end) {
        serve(static_cast<int>(id), end);
      }
    }
    while (store_.has_woken() && Clock::now() < end) store_.answer_woken();
  }

  void accept_some(Clock::time_point end) {
    // Limited, so that existing connections are served too.
    for (int i = 0; i < kMostAccepted; ++i) {
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

  // The listener would be reported as ready all the time, although nothing can be accepted.
  void stop_listening(int error) {
    poller_.forget(listener_.get());
    is_listening_ = false;
    next_tick_ = std::min(next_tick_, Clock::now() + kTick);
    const auto now = Clock::now();
    if (!on_shortage_ || now < next_report_) return;
    next_report_ = now + kBetweenReports;
    on_shortage_(str("cannot accept more connections of ranks: ", guests_.size(), " are open (",
                     std::strerror(error), "); new connections wait until one is closed"));
  }

  void listen_again() {
    if (!is_listening_) is_listening_ = poller_.watch(listener_.get(), kListenerId, POLLIN);
  }

  void admit(int socket, Clock::time_point end) {
    if (const auto id = strangers_.one_too_many()) drop(*id, Clock::now());
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Guest guest{.connection = std::make_unique<Connection>(socket, context_),
                .address = peer_address(socket),
                .reached_at = local_address(socket)};
    const int id = next_id_++;
    if (!poller_.watch(socket, static_cast<std::uint64_t>(id), POLLIN)) return;
    strangers_.add(id, guest.address, Clock::now());
    guests_.emplace(id, std::move(guest));
    serve(id, end);
  }

  void serve(int id, Clock::time_point end) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    Guest& guest = found->second;
    guest.connection->advance();
    try {
      do {
        if (const auto message = guest.connection->next()) take(id, guest, *message);
      } while (guest.connection->has_message() && Clock::now() < end);
    } catch (const std::exception&) {  // The client knows the token but breaks the protocol.
      unreadable_.insert(id);
    }
    if (guest.connection->known()) {
      strangers_.remove(id);
    } else if (guest.connection->has_answered()) {
      strangers_.has_answered(id);
    }
    look_after(id, guest);
  }

  // Decides what to do next with a connection that was read or written.
  void look_after(int id, Guest& guest) {
    const Connection& connection = *guest.connection;
    if (unreadable_.contains(id)) return;
    if (connection.has_message()) {
      unfinished_.insert(id);
    } else if (!connection.open()) {
      closed_.insert(id);
    }
    const short events = connection.events();
    if (events == guest.watched) return;
    if (poller_.change(connection.file(), static_cast<std::uint64_t>(id), events)) {
      guest.watched = events;
    } else {
      unfinished_.insert(id);  // served in the next pass without being reported
    }
  }

  void send(int id, const std::string& message) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    found->second.connection->send(message);
    look_after(id, found->second);
  }

  void take(int id, Guest& guest, const std::string& message) {
    if (guest.role == Role::unknown) return greet(id, guest, message);
    const auto now = Clock::now();
    if (guest.role == Role::store) return store_.handle(id, message, now);
    coordinator_->receive(id, agent_message_of(message), guest.address, guest.reached_at, now);
    all_gone_ = coordinator_->all_gone();
  }

  // A rank with another protocol version receives this server's before it is dropped.
  void greet(int id, Guest& guest, const std::string& message) {
    if (message == kAgentGreeting && coordinator_) {
      guest.role = Role::agent;
      return;
    }
    guest.connection->send(kStoreGreeting);
    guest.role = message == kStoreGreeting ? Role::store : Role::unknown;
    if (guest.role == Role::unknown) unreadable_.insert(id);
  }

  void tick(Clock::time_point now) {
    store_.tick(now);
    if (now < next_tick_) return;
    next_tick_ = now + kTick;
    listen_again();
    if (!coordinator_) return;
    coordinator_->tick(now);
    all_gone_ = coordinator_->all_gone();
  }

  void drop_gone(Clock::time_point now) {
    for (const int id : strangers_.late(now)) drop(id, now);
    for (const int id : std::exchange(unreadable_, {})) drop(id, now);
    for (const int id : std::exchange(closed_, {})) drop(id, now);
    if (coordinator_) all_gone_ = coordinator_->all_gone();
  }

  void drop(int id, Clock::time_point now) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    const Guest guest = std::move(found->second);
    guests_.erase(found);
    poller_.forget(guest.connection->file());
    strangers_.remove(id);
    unfinished_.erase(id);
    store_.forget(id);
    if (guest.role == Role::agent) tell_coordinator(id, *guest.connection, now);
    listen_again();
  }

  // A launcher that ends closes its connection in order; any other failure may be the network's.
  void tell_coordinator(int id, const Connection& connection, Clock::time_point now) {
    if (connection.open())
      return coordinator_->lost(id, "it sent a message that this version of hasten cannot read",
                                now);
    if (connection.ended()) return coordinator_->lost(id, connection.why_closed(), now);
    coordinator_->broken(id);
  }

  void send_last_messages() {
    const auto deadline = Clock::now() + kForLastMessages;
    for (auto& [id, guest] : guests_) {
      if (guest.connection->known()) guest.connection->flush(deadline);
    }
  }

  SecureContext context_;
  Descriptor listener_, wake_;
  Poller poller_;
  StoreTable store_;
  std::optional<Coordinator> coordinator_;
  std::function<void(const std::string&)> on_shortage_;
  std::unordered_map<int, Guest> guests_;
  Strangers strangers_;
  std::set<int> unfinished_;  // Connections with messages left over from the last pass.
  std::set<int> unreadable_;  // Connections that know the token but break the protocol.
  std::set<int> closed_;
  int next_id_ = kFirstGuestId;
  bool is_listening_ = true;
  Clock::time_point next_tick_ = Clock::now() + kTick;
  Clock::time_point next_report_{};
};

JobServer::JobServer(ServerOptions options) : loop_(std::make_unique<Loop>(std::move(options))) {
  port_ = loop_->port();
  thread_ = start_thread([this] { loop_->run(); });
  if (!thread_.joinable())
    throw IoError("launch.start",
                  {.what = "starting the thread that serves the job's keys and values",
                   .got = std::strerror(EAGAIN),
                   .hint = "raise ulimit -u or the control group's pids.max"});
}

JobServer::~JobServer() {
  loop_->ask(loop_->stop_);
  thread_.join();
}

void JobServer::clear() { loop_->ask(loop_->clear_); }

bool JobServer::all_have_gone() const { return loop_->all_gone_; }

}  // namespace hasten::rendezvous
