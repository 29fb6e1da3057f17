#include "rendezvous/mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/poll_timeout.h"
#include "base/running_clock.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/mesh_sockets.h"
#include "rendezvous/pending_connections.h"

namespace hasten::rendezvous {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kMinAttemptPause = 2ms, kMaxAttemptPause = 500ms;  // Between attempts to connect.
// The longest pause for a local socket, where an attempt costs little.
constexpr auto kMaxLocalPause = 10ms;
constexpr auto kPauseWithoutDescriptors = 50ms;  // Between attempts to accept.

// Each side sends this after the handshake.
struct Greeting {
  char nonce[32];  // The group's random number.
  std::int64_t rank;
};

// Each rank sends this before any of them listens.
struct StartInfo {
  std::string nonce;  // The group uses rank 0's.
  bool encrypt = true;
  std::string machine;  // Equal if a local socket can connect two ranks.

  std::string text() const {
    return json{{"nonce", nonce}, {"encrypt", encrypt}, {"machine", machine}}.dump();
  }
  static StartInfo of(const std::string& text) {
    const json fields = json::parse(text);
    return {.nonce = fields.at("nonce"),
            .encrypt = fields.at("encrypt"),
            .machine = fields.at("machine")};
  }
};

// The addresses on which a rank listens.
struct ListenAddress {
  std::string local_name;
  std::string address;
  int port = 0;  // 0 if all ranks are on one machine.

  std::string text() const {
    return json{{"local", local_name}, {"address", address}, {"port", port}}.dump();
  }
  static ListenAddress of(const std::string& text) {
    const json fields = json::parse(text);
    return {.local_name = fields.at("local"),
            .address = fields.at("address"),
            .port = fields.at("port")};
  }
};

// A connection that has not yet proved that it belongs to the group.
class Candidate {
 public:
  enum class State { running, done, failed };

  // `expected` is the rank that this side has connected to. It is -1 if the other side has
  // connected; `id` is then the candidate's number in `pending_`.
  Candidate(std::unique_ptr<ByteStream> stream, const Greeting& own, std::int64_t expected,
            int id = -1)
      : expected(expected), id(id), stream_(std::move(stream)), own_(own) {}

  const std::int64_t expected;
  const int id;

  int descriptor() const { return stream_->descriptor(); }
  short events() const {
    if (!handshake_is_done_) return stream_->events();
    return static_cast<short>(wants_to_write() ? POLLOUT : POLLIN);
  }
  // True if the other side knows the secret, or is a local process of this user.
  bool is_authenticated() const { return handshake_is_done_; }
  const Greeting& other() const { return other_; }
  std::unique_ptr<ByteStream> take_stream() { return std::move(stream_); }
  const std::string& failure_reason() const { return stream_->end_reason(); }

  // Continues without blocking.
  State advance() {
    if (!handshake_is_done_) {
      const Handshake handshake = stream_->handshake();
      if (handshake == Handshake::failed) return State::failed;
      if (handshake == Handshake::running) return State::running;
      handshake_is_done_ = true;
    }
    // The accepting side answers only after it has received the group's nonce.
    if (sends_first() && !write()) return State::failed;
    if (!read()) return State::failed;
    if (got_ < sizeof other_) return State::running;
    if (std::memcmp(other_.nonce, own_.nonce, sizeof own_.nonce) != 0) return State::failed;
    if (!sends_first() && !write()) return State::failed;
    return sent_ == sizeof own_ ? State::done : State::running;
  }

 private:
  bool sends_first() const { return expected >= 0; }
  bool wants_to_write() const {
    return sent_ < sizeof own_ && (sends_first() || got_ == sizeof other_);
  }
  bool write() {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&own_);
    while (sent_ < sizeof own_) {
      const auto now = stream_->write(bytes + sent_, sizeof own_ - sent_);
      if (now <= 0) return now == 0;
      sent_ += static_cast<std::size_t>(now);
    }
    return true;
  }
  bool read() {
    auto* const buffer = reinterpret_cast<std::byte*>(&other_);
    while (got_ < sizeof other_) {
      const auto now = stream_->read(buffer + got_, sizeof other_ - got_);
      if (now <= 0) return now == 0;
      got_ += static_cast<std::size_t>(now);
    }
    return true;
  }

  std::unique_ptr<ByteStream> stream_;
  Greeting own_, other_{};
  bool handshake_is_done_ = false;
  std::size_t sent_ = 0, got_ = 0;
};

// Each rank connects to the ranks below it and accepts connections from the ranks above it.
class Mesh {
 public:
  Mesh(const MeshOptions& options, Clock::duration limit)
      : options_(options),
        deadline_(clock_.now() + limit),
        server_(std::make_shared<SecureContext>(Side::server, options.secret)),
        client_(std::make_shared<SecureContext>(Side::client, options.secret)),
        peers_(static_cast<std::size_t>(options.size)) {}

  std::vector<std::unique_ptr<ByteStream>> connect(const Exchange& exchange) {
    exchange_addresses(exchange);
    attempts_.resize(static_cast<std::size_t>(options_.rank));
    while (missing_count() > 0) {
      if (clock_.now() >= deadline_) throw_missing_ranks();
      start_attempts();
      if (missing_count() > 0) wait();
      drop_expired();
    }
    return std::move(peers_);
  }

 private:
  struct Attempt {
    Clock::time_point next{};
    Clock::duration pause = kMinAttemptPause;
    bool runs = false;
  };

  void exchange_addresses(const Exchange& exchange) {
    const std::string machine = local_socket_scope(options_.address);
    std::vector<StartInfo> starts;
    for (const std::string& text :
         exchange("start", StartInfo{new_token(), options_.encrypt, machine}.text()))
      starts.push_back(StartInfo::of(text));
    check_encryption(starts);
    starts.front().nonce.copy(own_.nonce, sizeof own_.nonce);  // All ranks use rank 0's.
    own_.rank = options_.rank;
    for (const StartInfo& each : starts)
      is_local_.push_back(!machine.empty() && each.machine == machine);
    ListenAddress own{.local_name = "hasten " + new_token(),
                      .address = without_interface(options_.address)};
    local_listener_ = listen_locally(own.local_name);
    if (std::find(is_local_.begin(), is_local_.end(), false) != is_local_.end()) {
      remote_listener_ = listen_at(options_.address);
      own.port = port_of(remote_listener_->get());
    }
    for (const std::string& text : exchange("address", own.text()))
      addresses_.push_back(ListenAddress::of(text));
  }

  // Ranks that differ in `encrypt` would reject each other's connections.
  void check_encryption(const std::vector<StartInfo>& starts) const {
    const auto other = std::find_if(starts.begin(), starts.end(), [&](const StartInfo& each) {
      return each.encrypt != options_.encrypt;
    });
    if (other == starts.end()) return;
    throw ConfigError(
        "process.encryption",
        {.what = "encryption between the ranks of a group",
         .got = str(options_.encrypt ? "yes" : "no", " on rank ", options_.rank, ", ",
                    other->encrypt ? "yes" : "no", " on rank ", other - starts.begin()),
         .expected = "the same on every rank",
         .hint = "--encrypt (HASTEN_ENCRYPT) must be the same on every machine"});
  }

  std::int64_t missing_count() const {
    return std::count(peers_.begin(), peers_.end(), nullptr) - 1;  // Excludes this rank.
  }

  [[noreturn]] void throw_missing_ranks() const {
    std::vector<std::string> ranks;
    for (std::int64_t rank = 0; rank < options_.size; ++rank) {
      if (rank != options_.rank && !peers_[static_cast<std::size_t>(rank)])
        ranks.push_back(str(rank));
    }
    throw IoError(
        "process.rank-missing",
        {.what = str("connecting the ranks of a group, on rank ", options_.rank),
         .got = str("no connection with rank ", join(ranks, ", "),
                    last_problem_.empty() ? "" : "; " + last_problem_),
         .expected = "a connection with every rank within the time limit",
         .hint = "check whether it has ended, and whether its address and ports can be reached "
                 "from this machine"});
  }

  void start_attempts() {
    const auto now = Clock::now();
    for (std::size_t rank = 0; rank < attempts_.size(); ++rank) {
      Attempt& attempt = attempts_[rank];
      if (peers_[rank] || attempt.runs || now < attempt.next) continue;
      // The actual pause is random, from 0.5 to 1.5 times `pause`, so that ranks do not all try at
      // once.
      attempt.next = now + attempt.pause / 2 + attempt.pause * (random_() % 1024) / 1024;
      attempt.pause = std::min<Clock::duration>(
          attempt.pause * 2, is_local_[rank] ? Clock::duration(kMaxLocalPause) : kMaxAttemptPause);
      const ListenAddress& address = addresses_[rank];
      const int socket = is_local_[rank]
                             ? connect_locally(address.local_name)
                             : begin_connection(address.address, address.port, options_.address);
      if (socket < 0) {
        last_problem_ = std::strerror(errno);
        continue;
      }
      attempt.runs = true;
      candidates_.push_back(std::make_unique<Candidate>(
          stream_over(socket, is_local_[rank], client_), own_, static_cast<std::int64_t>(rank)));
      advance(candidates_.back());
    }
    std::erase(candidates_, nullptr);
  }

  static std::unique_ptr<ByteStream> stream_over(
      int socket, bool is_local, const std::shared_ptr<const SecureContext>& context) {
    auto owned = std::make_unique<Descriptor>(socket);
    if (is_local) return std::make_unique<PlainStream>(std::move(owned));
    return std::make_unique<TlsStream>(std::move(owned), context);
  }

  int longest_wait() {
    auto until =
        Clock::now() + std::min<Clock::duration>(kMaxAttemptPause, deadline_ - clock_.now());
    if (resume_listening_at_ > Clock::now()) until = std::min(until, resume_listening_at_);
    for (std::size_t rank = 0; rank < attempts_.size(); ++rank) {
      if (!peers_[rank] && !attempts_[rank].runs) until = std::min(until, attempts_[rank].next);
    }
    return poll_timeout(until);
  }

  void wait() {
    std::vector<pollfd> files;
    for (const auto& candidate : candidates_)
      files.push_back({.fd = candidate->descriptor(), .events = candidate->events(), .revents = 0});
    const std::size_t count = files.size();
    const bool listens = Clock::now() >= resume_listening_at_;
    for (const auto& listener : {local_listener_.get(), remote_listener_.get()}) {
      const int file = listener && listens ? listener->get() : -1;
      files.push_back({.fd = file, .events = POLLIN, .revents = 0});
    }
    if (poll(files.data(), files.size(), longest_wait()) <= 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (files[i].revents != 0) advance(candidates_[i]);
    }
    std::erase(candidates_, nullptr);
    if (files[count].revents != 0) accept_from(*local_listener_, /*is_local=*/true);
    if (files[count + 1].revents != 0) accept_from(*remote_listener_, /*is_local=*/false);
  }

  void advance(std::unique_ptr<Candidate>& candidate) {
    const auto state = candidate->advance();
    if (candidate->is_authenticated()) pending_.mark_valid(candidate->id);
    if (state == Candidate::State::running) return;
    if (state == Candidate::State::done) return admit(candidate);
    drop(candidate);
  }

  // If a rank connects twice, because its first connection was dropped on its side, the second one
  // counts.
  void admit(std::unique_ptr<Candidate>& candidate) {
    const std::int64_t rank = candidate->other().rank;
    const bool is_expected = candidate->expected >= 0
                                 ? rank == candidate->expected
                                 : rank > options_.rank && rank < options_.size;
    if (!is_expected) return drop(candidate);
    std::unique_ptr<ByteStream> stream = candidate->take_stream();
    pending_.remove(candidate->id);
    candidate.reset();
    const auto at = static_cast<std::size_t>(rank);
    if (!is_local_[at] && !options_.encrypt)
      stream = std::make_unique<PlainStream>(stream->release());
    peers_[at] = std::move(stream);
  }

  void drop(std::unique_ptr<Candidate>& candidate) {
    if (candidate->expected >= 0) {
      attempts_[static_cast<std::size_t>(candidate->expected)].runs = false;
      if (!candidate->failure_reason().empty()) last_problem_ = candidate->failure_reason();
    }
    pending_.remove(candidate->id);
    candidate.reset();
  }

  void accept_from(const Descriptor& listener, bool is_local) {
    // The number is limited, so that existing connections proceed too.
    for (int i = 0; i < 64; ++i) {
      const AcceptedConnection accepted = accept_from_listener(listener.get(), is_local);
      if (accepted.socket < 0) {
        if (!may_accept_more(accepted.error)) return;
        continue;
      }
      if (const auto id = pending_.connection_to_evict()) drop_pending(*id);
      pending_.add(next_id_, accepted.address, Clock::now());
      candidates_.push_back(std::make_unique<Candidate>(
          stream_over(accepted.socket, is_local, server_), own_, -1, next_id_++));
      advance(candidates_.back());
      std::erase(candidates_, nullptr);
    }
  }

  // Handles the errno of a failed accept.
  bool may_accept_more(int error) {
    if (error == EINTR || error == ECONNABORTED || error == EPERM) return true;
    if (error == EAGAIN) return false;
    // No file descriptor or memory is left: dropping one pending connection frees some, and the
    // listeners pause.
    last_problem_ = std::strerror(error);
    if (const auto id = pending_.oldest()) drop_pending(*id);
    resume_listening_at_ = Clock::now() + kPauseWithoutDescriptors;
    return false;
  }

  void drop_pending(int id) {
    for (auto& candidate : candidates_) {
      if (candidate->id == id) drop(candidate);
    }
    std::erase(candidates_, nullptr);
  }

  void drop_expired() {
    for (const int id : pending_.expired(Clock::now())) drop_pending(id);
  }

  const MeshOptions& options_;
  // A job that is suspended while its ranks connect continues when it is resumed.
  RunningClock clock_;
  const Clock::time_point deadline_;  // Measured by clock_.
  const std::shared_ptr<const SecureContext> server_, client_;
  Greeting own_{};
  std::vector<bool> is_local_;
  std::vector<ListenAddress> addresses_;
  std::unique_ptr<Descriptor> local_listener_, remote_listener_;
  std::vector<Attempt> attempts_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  Clock::time_point resume_listening_at_{};
  PendingConnections pending_;  // The candidates that have connected to this rank.
  int next_id_ = 0;
  std::vector<std::unique_ptr<ByteStream>> peers_;
  std::string last_problem_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

std::vector<std::unique_ptr<ByteStream>> connect_mesh(const MeshOptions& options,
                                                      const Exchange& exchange,
                                                      Clock::duration limit) {
  return Mesh(options, limit).connect(exchange);
}

}  // namespace hasten::rendezvous
