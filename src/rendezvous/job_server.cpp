#include "rendezvous/job_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "hasten/base/error.h"
#include "rendezvous/connection.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_table.h"

namespace hasten::rendezvous {
namespace {

constexpr auto kHandshake = std::chrono::seconds(5);  // for a stranger to show the token
constexpr std::size_t kStrangers = 256;               // at once
constexpr auto kTick = std::chrono::seconds(1);

}  // namespace

class JobServer::Loop {
 public:
  explicit Loop(ServerOptions options)
      : context_(Side::server, options.token),
        listener_(listen_on(options.loopback_only, options.port)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        store_([this](int id, const std::string& message) { send(id, message); }) {
    if (options.coordinator) {
      coordinator_.emplace(
          *options.coordinator,
          [this](int id, const nlohmann::json& message) { send(id, message.dump()); },
          [this] { store_.clear(); });
    }
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    close(listener_);
    close(wake_);
  }

  int port() const { return port_of(listener_); }

  void run() {
    while (!stop_) {
      wait();
      if (clear_.exchange(false)) store_.clear();
      const auto now = Clock::now();
      store_.tick(now);
      if (coordinator_ && now >= next_tick_) {
        coordinator_->tick(now);
        all_gone_ = coordinator_->all_gone();
        next_tick_ = now + kTick;
      }
      drop_closed(now);
    }
    for (auto& [id, guest] : guests_) {
      if (guest.connection->known())
        guest.connection->flush(Clock::now() + std::chrono::milliseconds(200));
    }
  }

  void ask(std::atomic<bool>& wish) {
    wish = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = write(wake_, &one, sizeof one);
  }
  std::atomic<bool> stop_ = false, clear_ = false, all_gone_ = false;

 private:
  enum class Role { unknown, store, agent };
  struct Guest {
    std::unique_ptr<Connection> connection;
    Role role = Role::unknown;
    Clock::time_point came;
    std::string address, reached_at;
  };

  void send(int id, const std::string& message) {
    const auto guest = guests_.find(id);
    if (guest != guests_.end()) guest->second.connection->send(message);
  }

  int longest_wait() const {
    auto until = Clock::now() + kTick;
    if (coordinator_) until = std::min(until, next_tick_);
    if (const auto deadline = store_.next_deadline()) until = std::min(until, *deadline);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  void wait() {
    std::vector<pollfd> files = {{.fd = wake_, .events = POLLIN, .revents = 0},
                                 {.fd = listener_, .events = POLLIN, .revents = 0}};
    std::vector<int> ids = {-1, -1};
    for (const auto& [id, guest] : guests_) {
      files.push_back(
          {.fd = guest.connection->file(), .events = guest.connection->events(), .revents = 0});
      ids.push_back(id);
    }
    if (poll(files.data(), files.size(), longest_wait()) <= 0) return;
    std::uint64_t woken = 0;
    [[maybe_unused]] const ssize_t got = read(wake_, &woken, sizeof woken);
    if (files[1].revents != 0) accept_all();
    for (std::size_t i = 2; i < files.size(); ++i) {
      if (files[i].revents != 0) serve(ids[i]);
    }
  }

  void accept_all() {
    while (true) {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket < 0) return;
      const auto strangers = static_cast<std::size_t>(
          std::count_if(guests_.begin(), guests_.end(),
                        [](const auto& each) { return !each.second.connection->known(); }));
      if (strangers >= kStrangers) {
        close(socket);
        continue;
      }
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      Guest guest{.came = Clock::now(),
                  .address = peer_address(socket),
                  .reached_at = local_address(socket)};
      guest.connection = std::make_unique<Connection>(socket, context_);
      guests_.emplace(next_id_++, std::move(guest));
    }
  }

  void serve(int id) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    Guest& guest = found->second;
    guest.connection->advance();
    try {
      while (const auto message = guest.connection->next()) take(id, guest, *message);
    } catch (const std::exception&) {  // it knows the token, and yet not the language
      rude_.push_back(id);
    }
  }

  void take(int id, Guest& guest, const std::string& message) {
    const auto now = Clock::now();
    if (guest.role == Role::unknown) {
      if (message == "store") guest.role = Role::store;
      if (message == "agent" && coordinator_) guest.role = Role::agent;
      if (guest.role == Role::unknown) rude_.push_back(id);
      return;
    }
    if (guest.role == Role::store) return store_.handle(id, message, now);
    coordinator_->receive(id, nlohmann::json::parse(message), guest.address, guest.reached_at, now);
    all_gone_ = coordinator_->all_gone();
  }

  void drop_closed(Clock::time_point now) {
    std::vector<int> gone = std::move(rude_);
    rude_.clear();
    for (const auto& [id, guest] : guests_) {
      const bool late = !guest.connection->known() && now > guest.came + kHandshake;
      if (!guest.connection->open() || late) gone.push_back(id);
    }
    for (const int id : gone) {
      const auto found = guests_.find(id);
      if (found == guests_.end()) continue;
      const Guest guest = std::move(found->second);
      guests_.erase(found);
      store_.forget(id);
      if (guest.role == Role::agent) tell_coordinator(id, *guest.connection, now);
    }
    if (coordinator_) all_gone_ = coordinator_->all_gone();
  }

  // A launcher that ends closes its connection in order; a connection that fails may have been the
  // network's fault.
  void tell_coordinator(int id, const Connection& connection, Clock::time_point now) {
    if (connection.open()) return coordinator_->lost(id, "it said what nobody understands", now);
    if (connection.ended()) return coordinator_->lost(id, connection.why_closed(), now);
    coordinator_->broken(id);
  }

  SecureContext context_;
  int listener_, wake_;
  StoreTable store_;
  std::optional<Coordinator> coordinator_;
  std::map<int, Guest> guests_;
  std::vector<int> rude_;
  int next_id_ = 0;
  Clock::time_point next_tick_ = Clock::now() + kTick;
};

JobServer::JobServer(ServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))), thread_([this] { loop_->run(); }) {
  port_ = loop_->port();
}

JobServer::~JobServer() {
  loop_->ask(loop_->stop_);
  thread_.join();
}

void JobServer::clear() { loop_->ask(loop_->clear_); }

void JobServer::wait_for_farewells(double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  while (!loop_->all_gone_ && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace hasten::rendezvous
