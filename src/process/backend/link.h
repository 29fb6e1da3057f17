// File: process/backend/link.h (internal)
// Exchanges messages between this rank and one other over one connection. A message belongs to a
// slot and goes from the sender's memory directly into the memory that the receiver has provided
// for that slot. It is not sent before that memory is provided, so messages are never buffered.
//
//   link.receive({.at = memory, .bytes = 4096, .owner = &buffer}, slot);   // in one rank
//   link.send({.at = bytes, .bytes = 4096, .owner = &buffer}, slot);     // in the other
//
// A transmission begins with a header. The message follows only after `data` and `offered`:
//   ready    the receiver has provided memory for a message of the slot
//   offer    the sender has a message for the slot, but the receiver has announced no memory for
//            it; this tells a receiver that accepts messages from any rank which rank has one
//   data     the message, if memory was ready before the sender offered it
//   offered  the message, if the sender has offered it before
// Gloo's own TCP transport uses the same protocol (gloo/transport/tcp/pair.cc).
//
// A message may be shorter than the memory that is provided for it, as with Gloo. Once the
// connection has ended, calls throw the error that ended it: IoError "process.rank-missing", or
// UsageError "process.calls-differ" if a message was longer than its memory. Thread rule: any
// thread, but only one thread may call advance().
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/byte_stream.h"

namespace hasten {

// Receives the results of its transfers, in the order in which they end. Any thread may call it,
// with the link's lock held.
class TransferOwner {
 public:
  virtual void on_received(int rank) = 0;
  virtual void on_sent(int rank) = 0;
  virtual void on_failed(const std::exception_ptr& error) = 0;

 protected:
  ~TransferOwner() = default;
};

struct Transfer {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  TransferOwner* owner = nullptr;
};

class Link {
 public:
  // Callbacks to the owner of the links.
  struct Events {
    // The owner must start or stop polling for room to write. Any thread may call it, with the
    // link's lock held. Only advance(), fail() and cancel() call the other two, without the lock.
    std::function<void(int rank, bool wants_to_write)> on_write_interest_changed;
    // The other rank has offered a message for which this rank has provided no memory.
    std::function<void(int rank, std::uint64_t slot)> on_offered;
    // The connection has ended.
    std::function<void(int rank)> on_failed;
  };
  // `rank` is the other rank. `events` must outlive the link.
  Link(int rank, std::unique_ptr<rendezvous::ByteStream> stream, const Events& events);

  int descriptor() const { return stream_->descriptor(); }
  void send(const Transfer& transfer, std::uint64_t slot);
  void receive(const Transfer& transfer, std::uint64_t slot);
  // Like receive(), but returns false and does nothing unless the other rank has offered a message
  // for the slot.
  bool receive_offered(const Transfer& transfer, std::uint64_t slot);

  // Reads and writes as much as is possible without waiting.
  void advance();
  // Ends the connection: all transfers fail with the error.
  void fail(const std::exception_ptr& error);
  bool is_open() const;
  // Cancels the transfers of an owner. Its memory is not used after the call. A message that was
  // offered or queued cannot be withdrawn, so the connection ends if there is one.
  void cancel(const TransferOwner* owner);

 private:
  enum class Kind : std::uint64_t { ready, offer, data, offered };
  struct Header {
    Kind kind;
    std::uint64_t slot, bytes;
  };
  struct Outgoing {
    Header header;
    Transfer transfer;
    std::size_t sent = 0;  // bytes of header and message together
  };
  // The state of one slot.
  struct Slot {
    std::deque<Transfer> to_send, to_receive;
    // The number of buffers that the other rank has provided and this rank has not used yet.
    std::int64_t remote_buffers = 0;
    // The number of buffers that this rank has provided and that are not filled yet.
    std::int64_t local_buffers = 0;
    // The number of the other rank's offers for which this rank has provided no memory.
    std::int64_t unanswered_offers = 0;
    // The number of the other rank's offers for which this rank has provided memory but no message
    // has arrived yet.
    std::int64_t answered_offers = 0;
    bool is_idle() const {
      return to_send.empty() && to_receive.empty() && remote_buffers == 0 && local_buffers == 0 &&
             unanswered_offers == 0;
    }
  };
  using Lock = std::unique_lock<std::mutex>;

  void check_open() const;
  void enqueue(Kind kind, std::uint64_t slot, const Transfer& transfer = {});
  void provide_memory(const Transfer& transfer, std::uint64_t slot);
  void write(Lock& lock);
  std::size_t write_front();
  bool read();
  bool read_some();
  bool handle_header();
  void finish_message();
  void update_write_interest();
  bool is_same_process() const;
  void end(const std::exception_ptr& error);
  // Ends the connection, releases the lock and calls on_failed().
  void end_and_notify(Lock& lock, const std::exception_ptr& error);

  const int rank_;
  const std::unique_ptr<rendezvous::ByteStream> stream_;
  const Events& events_;
  const pid_t process_;  // a fork of this process must not use the connection
  mutable std::mutex mutex_;
  std::exception_ptr error_;  // null until the connection has ended
  bool wants_to_write_ = false;
  std::unordered_map<std::uint64_t, Slot> slots_;
  std::deque<Outgoing> outgoing_;
  std::vector<std::byte> staging_;

  Header header_{};
  Transfer incoming_;    // the transfer of the message whose header has arrived
  std::size_t got_ = 0;  // bytes of the header and the message that have arrived
  std::vector<std::uint64_t> new_offers_;
};

}  // namespace hasten
