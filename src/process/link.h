// File: process/link.h (internal)
// The messages between this rank and one other, over one connection. A message has a slot, and goes
// from a sender's memory straight into the memory that the receiver has given for that slot: it is
// not sent before the receiver has given it, so that nothing is ever kept between.
//
//   link.receive({.at = room, .bytes = 4096, .owner = &buffer}, slot);   // in one rank
//   link.send({.at = bytes, .bytes = 4096, .owner = &buffer}, slot);     // in the other
//
// What goes over the connection is a header, behind which only `data` has more bytes:
//   ready  the receiver has given memory for a message of the slot
//   offer  the sender has a message for the slot and knows of no memory yet; who receives from any
//          rank learns by it which rank has something
//   data   the message; `offered` is the same for one that has been offered before
// This is the order in which Gloo's own TCP transport speaks (gloo/transport/tcp/pair.cc).
//
// A message may be shorter than the memory that is given for it, as with Gloo. Throws IoError
// "process.rank-missing" once the connection has ended, UsageError "process.calls-differ" if it has
// ended because a message was longer. Thread rule: any thread, but
// advance() is called by one.
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

// Who waits for a transfer: called in the order in which its transfers end, in any thread.
class TransferOwner {
 public:
  virtual void received(int rank) = 0;
  virtual void sent(int rank) = 0;
  virtual void failed(const std::exception_ptr& error) = 0;

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
  // What the owner of the links hears of.
  struct Events {
    // Whether to poll for room to write, too: called with the link's lock held, by any thread. The
    // other two are called without it, by advance(), fail() and forget() alone.
    std::function<void(int rank, bool wants_to_write)> interest;
    // A message was offered for which no memory is given.
    std::function<void(int rank, std::uint64_t slot)> offered;
    std::function<void(int rank)> failed;
  };
  // `rank`: the other one. `events` outlives the link.
  Link(int rank, std::unique_ptr<rendezvous::ByteStream> stream, const Events& events);

  int file() const { return stream_->file(); }
  void send(const Transfer& transfer, std::uint64_t slot);
  void receive(const Transfer& transfer, std::uint64_t slot);
  // Gives the memory only if the other rank has offered a message for the slot.
  bool receive_offered(const Transfer& transfer, std::uint64_t slot);

  // Reads and writes what can be without waiting.
  void advance();
  // Ends the connection: all transfers fail with the error.
  void fail(const std::exception_ptr& error);
  bool is_open() const;
  // Nobody touches the owner's memory any more when it returns. A message that the other rank knows
  // of cannot be taken back, so the connection then ends.
  void forget(const TransferOwner* owner);

 private:
  enum class Kind : std::uint64_t { ready, offer, data, offered };
  struct Header {
    Kind kind;
    std::uint64_t slot, bytes;
  };
  struct Outgoing {
    Header header;
    Transfer transfer;
    std::size_t sent = 0;  // of both
  };
  // What both sides have said of one slot.
  struct Slot {
    std::deque<Transfer> to_send, to_receive;
    std::int64_t memory_of_peer = 0;   // that it has given, not yet used
    std::int64_t memory_given = 0;     // by this rank, not yet filled
    std::int64_t offers_of_peer = 0;   // for which this rank has given no memory
    std::int64_t offers_answered = 0;  // for which it has, and whose message has not come
    bool is_idle() const {
      return to_send.empty() && to_receive.empty() && memory_of_peer == 0 && memory_given == 0 &&
             offers_of_peer == 0;
    }
  };
  using Lock = std::unique_lock<std::mutex>;

  void check_open() const;
  void enqueue(Kind kind, std::uint64_t slot, const Transfer& transfer = {});
  void give(const Transfer& transfer, std::uint64_t slot);
  void write(Lock& lock);
  std::size_t write_front();
  bool read();
  bool read_some();
  bool take_header();
  void finish_message();
  void tell_interest();
  bool is_ours() const;
  void end(const std::exception_ptr& error);

  const int rank_;
  const std::unique_ptr<rendezvous::ByteStream> stream_;
  const Events& events_;
  const pid_t process_;  // a fork of it has no part in the connection
  mutable std::mutex mutex_;
  std::exception_ptr error_;  // null until the connection has ended
  bool wants_to_write_ = false;
  std::unordered_map<std::uint64_t, Slot> slots_;
  std::deque<Outgoing> outgoing_;
  std::vector<std::byte> staging_;

  Header header_{};
  Transfer incoming_;    // of the message whose header has come
  std::size_t got_ = 0;  // of its header and its bytes
  std::vector<std::uint64_t> new_offers_;
};

}  // namespace hasten
