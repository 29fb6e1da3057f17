// File: rendezvous/byte_stream.h (internal)
// Transfers bytes over a connected, non-blocking socket, either as they are or encrypted and
// authenticated by TLS with the job's token (secure_context.h). The owner polls descriptor().
//
//   TlsStream stream(std::move(socket), context);
//   while (stream.handshake() == Handshake::running) wait(stream.descriptor(), stream.events());
//   stream.write(bytes, size);
//   stream.read(buffer, size);
//
// Throws nothing: end_reason() returns the reason after the stream has ended. Thread rule: one
// thread at a time.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "rendezvous/secure_context.h"

struct ssl_st;  // OpenSSL's SSL

namespace hasten::rendezvous {

enum class Handshake { running, done, failed };

class ByteStream {
 public:
  // Makes the connected socket non-blocking.
  explicit ByteStream(std::unique_ptr<Descriptor> socket);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  int descriptor() const { return socket_->get(); }
  // The poll(2) events that the handshake waits for.
  virtual short events() const { return POLLIN; }
  virtual Handshake handshake() { return Handshake::done; }

  // Returns the number of bytes read: 0 if the call would block, -1 after the stream has ended.
  virtual std::ptrdiff_t read(std::byte* buffer, std::size_t size) = 0;
  // Returns the same for bytes written. After a 0, the next write must begin with the same bytes.
  virtual std::ptrdiff_t write(const std::byte* bytes, std::size_t size) = 0;

  // Returns why the stream has ended, or an empty text while it is open.
  const std::string& end_reason() const { return end_reason_; }
  // Returns the socket; the stream cannot be used afterwards.
  std::unique_ptr<Descriptor> release() { return std::move(socket_); }

 protected:
  std::ptrdiff_t end(std::string why);

 private:
  std::unique_ptr<Descriptor> socket_;
  std::string end_reason_;
};

class PlainStream : public ByteStream {
 public:
  using ByteStream::ByteStream;
  std::ptrdiff_t read(std::byte* buffer, std::size_t size) override;
  std::ptrdiff_t write(const std::byte* bytes, std::size_t size) override;
};

class TlsStream : public ByteStream {
 public:
  // The key is replaced after this many bytes. An AES-GCM key is safe for 2^24.5 records of 16 KiB
  // (RFC 8446, section 5.5), which is 390 GB.
  static constexpr std::uint64_t kKeyLifetimeBytes = std::uint64_t{1} << 37;

  TlsStream(std::unique_ptr<Descriptor> socket, std::shared_ptr<const SecureContext> context,
            std::uint64_t key_lifetime_bytes = kKeyLifetimeBytes);
  short events() const override { return events_; }
  // Fails unless both sides know the token.
  Handshake handshake() override;
  std::ptrdiff_t read(std::byte* buffer, std::size_t size) override;
  std::ptrdiff_t write(const std::byte* bytes, std::size_t size) override;

 private:
  std::ptrdiff_t result(int moved);

  struct Free {
    void operator()(ssl_st* tls) const;
  };
  std::shared_ptr<const SecureContext> context_;
  std::unique_ptr<ssl_st, Free> tls_;
  const std::uint64_t key_lifetime_bytes_;
  std::uint64_t bytes_ = 0;  // Bytes written with the current key.
  short events_ = POLLIN;
};

}  // namespace hasten::rendezvous
