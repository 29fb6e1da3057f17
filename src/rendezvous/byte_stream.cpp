#include "rendezvous/byte_stream.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "rendezvous/sockets.h"

namespace hasten::rendezvous {
namespace {

// OpenSSL's own socket BIO uses write(2), which ends the process with SIGPIPE if the other side has
// closed the connection. These three functions implement a BIO that does not.
int read_socket(BIO* bio, char* buffer, int size) {
  BIO_clear_retry_flags(bio);
  const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t got = recv(file, buffer, static_cast<std::size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int write_socket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = send(file, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (is_retryable_socket_error(errno) || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hasten");
    BIO_meth_set_read(made, read_socket);
    BIO_meth_set_write(made, write_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

BIO* bio_over(int socket) {
  BIO* const bio = BIO_new(socket_method());
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace

ByteStream::ByteStream(std::unique_ptr<Descriptor> socket) : socket_(std::move(socket)) {
  fcntl(descriptor(), F_SETFL, fcntl(descriptor(), F_GETFL) | O_NONBLOCK);
}

std::ptrdiff_t ByteStream::end(std::string why) {
  if (end_reason_.empty()) end_reason_ = std::move(why);
  return -1;
}

std::ptrdiff_t PlainStream::read(std::byte* buffer, std::size_t size) {
  ssize_t got = 0;
  while ((got = recv(descriptor(), buffer, size, 0)) < 0 && errno == EINTR) {
  }
  if (got > 0) return got;
  if (got == 0) return end("the other side has closed the connection");
  return errno == EAGAIN ? 0 : end(std::strerror(errno));
}

std::ptrdiff_t PlainStream::write(const std::byte* bytes, std::size_t size) {
  ssize_t sent = 0;
  while ((sent = send(descriptor(), bytes, size, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (sent >= 0) return sent;
  return is_retryable_socket_error(errno) ? 0 : end(std::strerror(errno));
}

void TlsStream::Free::operator()(ssl_st* tls) const { SSL_free(tls); }

TlsStream::TlsStream(std::unique_ptr<Descriptor> socket,
                     std::shared_ptr<const SecureContext> context, std::uint64_t key_lifetime_bytes)
    : ByteStream(std::move(socket)),
      context_(std::move(context)),
      tls_(SSL_new(context_->get())),
      key_lifetime_bytes_(key_lifetime_bytes) {
  // A repeated write may pass a copy of the bytes, and a write may stop early.
  SSL_set_mode(tls_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  BIO* const bio = bio_over(descriptor());
  SSL_set_bio(tls_.get(), bio, bio);  // Takes ownership.
  if (context_->side() == Side::server) {
    SSL_set_accept_state(tls_.get());
  } else {
    SSL_set_connect_state(tls_.get());
  }
}

// `moved` is the result of an OpenSSL call.
std::ptrdiff_t TlsStream::result(int moved) {
  if (moved > 0) return moved;
  const int system_error = errno;
  const int reason = SSL_get_error(tls_.get(), moved);
  events_ = reason == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return 0;
  const char* const text = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (text != nullptr) return end(text);
  const bool closed = reason == SSL_ERROR_ZERO_RETURN || system_error == 0;
  return end(closed ? "the other side has closed the connection" : std::strerror(system_error));
}

// Each call first clears the thread's error queue, because OpenSSL would report errors that other
// code has left there.
Handshake TlsStream::handshake() {
  ERR_clear_error();
  errno = 0;
  const int done = SSL_do_handshake(tls_.get());
  if (done != 1) return result(done) == 0 ? Handshake::running : Handshake::failed;
  // Only a handshake with the pre-shared key makes a session "reused".
  if (SSL_session_reused(tls_.get()) == 1) return Handshake::done;
  end("the other side does not know the job's token");
  return Handshake::failed;
}

std::ptrdiff_t TlsStream::read(std::byte* buffer, std::size_t size) {
  ERR_clear_error();
  errno = 0;
  const auto size_limit = static_cast<int>(std::min<std::size_t>(size, INT_MAX));
  return result(SSL_read(tls_.get(), buffer, size_limit));
}

std::ptrdiff_t TlsStream::write(const std::byte* bytes, std::size_t size) {
  ERR_clear_error();
  errno = 0;
  const auto size_limit = static_cast<int>(std::min<std::size_t>(size, INT_MAX));
  const std::ptrdiff_t written = result(SSL_write(tls_.get(), bytes, size_limit));
  if (written > 0) bytes_ += static_cast<std::uint64_t>(written);
  if (written <= 0 || bytes_ < key_lifetime_bytes_) return written;
  bytes_ = 0;
  SSL_key_update(tls_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // Applies to the next record.
  return written;
}

}  // namespace hasten::rendezvous
