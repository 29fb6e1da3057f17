#include "rendezvous/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/poll_timeout.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/message.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 8;  // Bytes of the length before each message.
constexpr std::size_t kMaxRead = std::size_t{1} << 20;
constexpr std::size_t kMaxRecordBytes = std::size_t{16} << 10;  // The longest TLS record.
constexpr std::size_t kMaxKeptBytes = std::size_t{64}
                                      << 10;  // Bytes that an empty buffer may keep.

// Frees a large buffer that is empty. A server has thousands of connections, and each may have
// carried one long message.
void release_if_empty(std::string& buffer) {
  if (buffer.empty() && buffer.capacity() > kMaxKeptBytes) std::string().swap(buffer);
}

// Returns whether the last error is an alert from the other side.
bool is_alert() { return ERR_GET_REASON(ERR_peek_last_error()) >= SSL_AD_REASON_OFFSET; }

std::string tls_error() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "the connection was closed" : reason;
}

}  // namespace

void Connection::Free::operator()(ssl_st* tls) const { SSL_free(tls); }

Connection::Connection(int socket, const SecureContext& context)
    : socket_(socket),
      side_(context.side()),
      tls_(SSL_new(context.get())),
      from_socket_(BIO_new(BIO_s_mem())),
      to_socket_(BIO_new(BIO_s_mem())) {
  SSL_set_bio(tls_.get(), from_socket_, to_socket_);
  if (side_ == Side::server) {
    SSL_set_accept_state(tls_.get());
  } else {
    SSL_set_connect_state(tls_.get());
  }
  continue_handshake();
}

Connection::~Connection() { close(socket_); }

short Connection::events() const {
  return static_cast<short>(POLLIN | (outgoing_.empty() ? 0 : POLLOUT));
}

void Connection::mark_closed(std::string why) {
  if (close_reason_.empty()) close_reason_ = std::move(why);
}

void Connection::collect_encrypted() {
  char buffer[16 << 10];
  int got = 0;
  while ((got = BIO_read(to_socket_, buffer, sizeof buffer)) > 0)
    outgoing_.append(buffer, static_cast<std::size_t>(got));
}

// Each call first clears the thread's error queue, because OpenSSL would report errors that other
// code has left there.
void Connection::continue_handshake() {
  ERR_clear_error();
  const int done = SSL_do_handshake(tls_.get());
  const int reason = SSL_get_error(tls_.get(), done);
  collect_encrypted();
  if (done != 1 && reason != SSL_ERROR_WANT_READ) {
    was_rejected_ = is_alert();
    return mark_closed(tls_error());
  }
  // Only a handshake with the pre-shared key makes a session "reused".
  const bool has_key = SSL_session_reused(tls_.get()) == 1;
  received_valid_message_ = side_ == Side::server && has_key;
  if (done != 1) return;
  is_authenticated_ = has_key;
  was_rejected_ = !is_authenticated_;
  if (!is_authenticated_) return mark_closed("the other side does not know the job's token");
  if (queued_until_authenticated_.empty()) return;
  encrypt(queued_until_authenticated_);
  queued_until_authenticated_ = {};
}

void Connection::encrypt(std::string_view bytes) {
  ERR_clear_error();
  // Writes one record at a time, because the BIO between TLS and the socket never shrinks.
  while (!bytes.empty() && is_open()) {
    const std::string_view record = bytes.substr(0, kMaxRecordBytes);
    std::size_t written = 0;
    const int done = SSL_write_ex(tls_.get(), record.data(), record.size(), &written);
    if (done != 1 || written != record.size()) mark_closed(tls_error());
    collect_encrypted();
    bytes.remove_prefix(record.size());
  }
}

void Connection::send(std::string_view message) {
  if (message.size() > kMaxMessageBytes) {
    throw DataError("rendezvous.message",
                    {.what = "length of a message",
                     .got = str(message.size(), " bytes"),
                     .expected = str("at most ", kMaxMessageBytes, " bytes")});
  }
  if (!is_open()) return;
  const std::string bytes =
      Packer().number(static_cast<std::int64_t>(message.size())).bytes() + std::string(message);
  if (!is_authenticated_) {
    queued_until_authenticated_ += bytes;
    return;
  }
  encrypt(bytes);
  write_socket();
}

void Connection::write_socket() {
  std::size_t written = 0;
  while (written < outgoing_.size()) {
    const ssize_t now = ::send(socket_, outgoing_.data() + written, outgoing_.size() - written,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && !is_retryable_socket_error(errno)) mark_closed(std::strerror(errno));
    if (now < 0) break;
    written += static_cast<std::size_t>(now);
  }
  outgoing_.erase(0, written);
  release_if_empty(outgoing_);
}

void Connection::read_socket() {
  char buffer[16 << 10];
  for (std::size_t total = 0; is_open() && total < kMaxRead;) {
    const ssize_t got = recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
    const int problem = errno;
    if (got < 0 && problem == EINTR) continue;
    if (got < 0 && problem == EAGAIN) return;
    if (got < 0) return mark_closed(std::strerror(problem));
    if (got == 0) {
      closed_by_peer_ = true;
      return mark_closed("the other side has closed the connection");
    }
    total += static_cast<std::size_t>(got);
    BIO_write(from_socket_, buffer, static_cast<int>(got));
    if (!is_authenticated_) continue_handshake();
    if (is_authenticated_) read_messages();
  }
}

void Connection::read_messages() {
  char buffer[16 << 10];
  int got = 0;
  ERR_clear_error();
  while ((got = SSL_read(tls_.get(), buffer, sizeof buffer)) > 0)
    incoming_.append(buffer, static_cast<std::size_t>(got));
  if (SSL_get_error(tls_.get(), got) != SSL_ERROR_WANT_READ) mark_closed(tls_error());
  std::size_t at = 0;
  while (incoming_.size() - at >= kLengthBytes) {
    const auto size = static_cast<std::uint64_t>(
        Unpacker(std::string_view(incoming_).substr(at, kLengthBytes)).number());
    if (size > kMaxMessageBytes)
      return mark_closed(str("a message of ", size, " bytes is too long"));
    if (incoming_.size() - at - kLengthBytes < size) break;
    messages_.push_back(incoming_.substr(at + kLengthBytes, size));
    at += kLengthBytes + size;
  }
  incoming_.erase(0, at);
  release_if_empty(incoming_);
}

void Connection::advance() {
  if (!is_open()) return;
  write_socket();
  read_socket();
  write_socket();
}

std::optional<std::string> Connection::next() {
  if (messages_.empty()) return std::nullopt;
  std::string message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void Connection::wait(RunningClock& clock, Clock::time_point deadline) const {
  // The clock must be read regularly.
  const auto left = std::min(deadline - clock.now(), RunningClock::kMaxStep / 2);
  pollfd file{.fd = socket_, .events = events(), .revents = 0};
  poll(&file, 1, poll_timeout(Clock::now() + left));
}

std::string Connection::receive(RunningClock& clock, Clock::time_point deadline,
                                std::string_view what) {
  while (true) {
    advance();
    if (auto message = next()) return *message;
    if (!is_open()) {
      throw IoError("rendezvous.lost",
                    {.what = str("the connection for ", what, " is lost: ", close_reason_)});
    }
    if (clock.now() >= deadline)
      throw IoError("rendezvous.time", {.what = str("the connection for ", what),
                                        .got = "no answer within the time limit",
                                        .expected = "an answer"});
    wait(clock, deadline);
  }
}

std::string Connection::receive(Clock::time_point deadline, std::string_view what) {
  RunningClock clock;
  return receive(clock, deadline, what);
}

void Connection::flush(RunningClock& clock, Clock::time_point deadline) {
  while (is_open() && (has_unsent() || !is_authenticated_) && clock.now() < deadline) {
    wait(clock, deadline);
    advance();
  }
}

void Connection::flush(Clock::time_point deadline) {
  RunningClock clock;
  flush(clock, deadline);
}

}  // namespace hasten::rendezvous
