// File: rendezvous/byte_stream.h (internal)
// A connected, non-blocking socket that carries bytes: as they are, or encrypted and authenticated
// by TLS with the job's token (secure_context.h). The owner polls file().
//
//   auto stream = std::make_unique<TlsStream>(std::move(socket), context);
//   while (stream->handshake() == Handshake::running) poll stream->file() for stream->events();
//   stream->write(bytes, size); stream->read(room, size);
//
// Nothing is thrown: a stream that has ended says why. Thread rule: one thread at a time.
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
  // The socket is connected; it becomes non-blocking.
  explicit ByteStream(std::unique_ptr<Descriptor> socket);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  int file() const { return socket_->get(); }
  // What the handshake waits for, of poll(2).
  virtual short events() const { return POLLIN; }
  virtual Handshake handshake() { return Handshake::done; }

  // The number of bytes read or written, which is 0 if the call would have to wait, and -1 after
  // the stream has ended. A write of 0 bytes is repeated with the same beginning.
  virtual std::ptrdiff_t read(std::byte* room, std::size_t size) = 0;
  virtual std::ptrdiff_t write(const std::byte* bytes, std::size_t size) = 0;

  // Why the stream has ended; empty while it has not.
  const std::string& why_ended() const { return why_ended_; }
  // Takes the socket out of the stream, which is then of no more use.
  std::unique_ptr<Descriptor> release() { return std::move(socket_); }

 protected:
  std::ptrdiff_t end(std::string why);

 private:
  std::unique_ptr<Descriptor> socket_;
  std::string why_ended_;
};

class PlainStream : public ByteStream {
 public:
  using ByteStream::ByteStream;
  std::ptrdiff_t read(std::byte* room, std::size_t size) override;
  std::ptrdiff_t write(const std::byte* bytes, std::size_t size) override;
};

class TlsStream : public ByteStream {
 public:
  // After so many bytes a key is replaced: AES-GCM's is good for 2^24.5 records of 16 KiB (RFC
  // 8446, section 5.5), which is 390 GB.
  static constexpr std::uint64_t kBytesOfAKey = std::uint64_t{1} << 37;

  TlsStream(std::unique_ptr<Descriptor> socket, std::shared_ptr<const SecureContext> context,
            std::uint64_t bytes_of_a_key = kBytesOfAKey);
  short events() const override { return events_; }
  // Fails unless both sides know the token.
  Handshake handshake() override;
  std::ptrdiff_t read(std::byte* room, std::size_t size) override;
  std::ptrdiff_t write(const std::byte* bytes, std::size_t size) override;

 private:
  std::ptrdiff_t result(int moved);

  struct Free {
    void operator()(ssl_st* tls) const;
  };
  std::shared_ptr<const SecureContext> context_;
  std::unique_ptr<ssl_st, Free> tls_;
  const std::uint64_t bytes_of_a_key_;
  std::uint64_t bytes_ = 0;  // written with the key
  short events_ = POLLIN;
};

}  // namespace hasten::rendezvous
