#include "process/backend/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The bytes of a header and the beginning of its message that are written together, in one system
// call and one TLS record.
constexpr std::size_t kStagingBytes = std::size_t{16} << 10;
// After this many bytes the lock is released for a moment, so that other threads can add transfers.
constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 20;

std::exception_ptr connection_error(int rank, const std::string& why) {
  return std::make_exception_ptr(IoError(
      "process.rank-missing", {.what = str("the connection with rank ", rank, " has ended: ", why),
                               .hint = "if that rank has ended, its output says why"}));
}

}  // namespace

Link::Link(int rank, std::unique_ptr<rendezvous::ByteStream> stream, const Events& events)
    : rank_(rank),
      stream_(std::move(stream)),
      events_(events),
      process_(getpid()),
      staging_(kStagingBytes) {}

bool Link::is_same_process() const { return getpid() == process_; }

void Link::check_open() const {
  if (error_) std::rethrow_exception(error_);
}

bool Link::is_open() const {
  const Lock lock(mutex_);
  return !error_;
}

void Link::send(const Transfer& transfer, std::uint64_t number) {
  Lock lock(mutex_);
  check_open();
  Slot& slot = slots_[number];
  if (slot.remote_buffers > 0) {
    --slot.remote_buffers;
    enqueue(Kind::data, number, transfer);
    if (slot.is_idle()) slots_.erase(number);
  } else {
    slot.to_send.push_back(transfer);
    enqueue(Kind::offer, number);
  }
  write(lock);
  update_write_interest();
}

void Link::receive(const Transfer& transfer, std::uint64_t number) {
  Lock lock(mutex_);
  check_open();
  provide_memory(transfer, number);
  write(lock);
  update_write_interest();
}

bool Link::receive_offered(const Transfer& transfer, std::uint64_t number) {
  Lock lock(mutex_);
  const auto slot = slots_.find(number);
  if (error_ != nullptr || slot == slots_.end() || slot->second.unanswered_offers == 0)
    return false;
  provide_memory(transfer, number);
  write(lock);
  update_write_interest();
  return true;
}

void Link::provide_memory(const Transfer& transfer, std::uint64_t number) {
  Slot& slot = slots_[number];
  slot.to_receive.push_back(transfer);
  ++slot.local_buffers;
  if (slot.unanswered_offers > 0) {
    --slot.unanswered_offers;
    ++slot.answered_offers;
  }
  enqueue(Kind::ready, number);
}

void Link::enqueue(Kind kind, std::uint64_t slot, const Transfer& transfer) {
  outgoing_.push_back(
      {.header = {.kind = kind, .slot = slot, .bytes = transfer.bytes}, .transfer = transfer});
}

void Link::advance() {
  Lock lock(mutex_);
  if (error_ != nullptr) return;
  while (read()) {
    lock.unlock();
    lock.lock();
  }
  write(lock);
  if (!stream_->end_reason().empty()) end(connection_error(rank_, stream_->end_reason()));
  update_write_interest();
  const auto offers = std::exchange(new_offers_, {});
  const bool has_ended = error_ != nullptr;
  lock.unlock();
  for (const std::uint64_t slot : offers) events_.on_offered(rank_, slot);
  if (has_ended) events_.on_failed(rank_);
}

// If the connection has ended, this does nothing. The owner calls advance(), which notices the end,
// because the interest in writing remains. So a write in another thread does not cause the other
// two events.
void Link::write(Lock& lock) {
  std::size_t written = 0;
  while (!error_ && !outgoing_.empty()) {
    const std::size_t now = write_front();
    if (now == 0) return;
    written += now;
    if (written < kMaxChunkBytes) continue;
    written = 0;
    lock.unlock();
    lock.lock();
  }
}

// Returns the number of bytes written, or 0 if the connection accepts none at the moment.
std::size_t Link::write_front() {
  Outgoing& front = outgoing_.front();
  const std::size_t all = sizeof(Header) + front.transfer.bytes;
  std::ptrdiff_t now = 0;
  if (front.sent < sizeof(Header)) {
    std::memcpy(staging_.data(), &front.header, sizeof(Header));
    const std::size_t staged = std::min(kStagingBytes, all);
    if (staged > sizeof(Header))
      std::memcpy(staging_.data() + sizeof(Header), front.transfer.at, staged - sizeof(Header));
    now = stream_->write(staging_.data() + front.sent, staged - front.sent);
  } else {
    const std::size_t from = front.sent - sizeof(Header);
    now = stream_->write(front.transfer.at + from,
                         std::min(kMaxChunkBytes, front.transfer.bytes - from));
  }
  if (now <= 0) return 0;
  front.sent += static_cast<std::size_t>(now);
  if (front.sent == all) {
    TransferOwner* const owner = front.transfer.owner;
    outgoing_.pop_front();
    if (owner != nullptr) owner->on_sent(rank_);
  }
  return static_cast<std::size_t>(now);
}

// Returns true if there may be more to read immediately.
bool Link::read() {
  std::size_t bytes = 0;
  while (!error_ && bytes < kMaxChunkBytes) {
    const std::size_t before = got_;
    if (!read_some()) return false;
    bytes += got_ > before ? got_ - before : sizeof(Header);
  }
  return !error_;
}

bool Link::read_some() {
  std::ptrdiff_t now = 0;
  if (got_ < sizeof(Header)) {
    now = stream_->read(reinterpret_cast<std::byte*>(&header_) + got_, sizeof(Header) - got_);
  } else {
    const std::size_t from = got_ - sizeof(Header), left = header_.bytes - from;
    // A message that nobody waits for any more is read and dropped.
    const bool is_wanted = incoming_.owner != nullptr;
    now = is_wanted ? stream_->read(incoming_.at + from, std::min(kMaxChunkBytes, left))
                    : stream_->read(staging_.data(), std::min(kStagingBytes, left));
  }
  if (now <= 0) return false;
  got_ += static_cast<std::size_t>(now);
  if (got_ == sizeof(Header) && !handle_header()) return false;
  if (got_ == sizeof(Header) + header_.bytes) finish_message();
  return true;
}

// Returns false, after ending the connection, if the header violates the protocol.
bool Link::handle_header() {
  Slot& slot = slots_[header_.slot];
  incoming_ = {};
  const bool is_notice = header_.kind == Kind::ready || header_.kind == Kind::offer;
  if (!is_notice && !slot.to_receive.empty()) {
    incoming_ = slot.to_receive.front();
    if (header_.bytes <= incoming_.bytes) {
      slot.to_receive.pop_front();
      return true;
    }
    // The transfer is still in the slot, so end() notifies its owner.
    const std::size_t available = std::exchange(incoming_, {}).bytes;
    end(std::make_exception_ptr(UsageError(
        "process.calls-differ",
        {.what = str("a message from rank ", rank_),
         .got = str(header_.bytes, " bytes"),
         .expected = str("at most ", available, " bytes"),
         .hint = "make every rank call the same collectives in the same order, with tensors of "
                 "the same sizes"})));
    return false;
  }
  if (is_notice && header_.bytes == 0) return true;
  end(connection_error(rank_, "it has sent an unexpected message"));
  return false;
}

void Link::finish_message() {
  got_ = 0;
  Slot& slot = slots_[header_.slot];
  if (header_.kind == Kind::data || header_.kind == Kind::offered) {
    --slot.local_buffers;
    if (header_.kind == Kind::offered) --slot.answered_offers;
    if (incoming_.owner != nullptr) std::exchange(incoming_.owner, nullptr)->on_received(rank_);
  } else if (header_.kind == Kind::offer) {
    // An offer that crossed this rank's `ready` has been answered already.
    const bool is_answered = slot.answered_offers < slot.local_buffers;
    if (is_answered) {
      ++slot.answered_offers;
    } else {
      ++slot.unanswered_offers;
      new_offers_.push_back(header_.slot);
    }
  } else if (slot.to_send.empty()) {
    ++slot.remote_buffers;
  } else {
    enqueue(Kind::offered, header_.slot, slot.to_send.front());
    slot.to_send.pop_front();
  }
  if (slot.is_idle()) slots_.erase(header_.slot);
}

void Link::update_write_interest() {
  const bool wants = !error_ && !outgoing_.empty();
  if (!error_ && wants != wants_to_write_) events_.on_write_interest_changed(rank_, wants);
  wants_to_write_ = wants;
}

void Link::end(const std::exception_ptr& error) {
  if (error_ || !is_same_process()) return;
  error_ = error;
  shutdown(stream_->descriptor(), SHUT_RDWR);  // so that the other side notices at once
  const auto notify = [&](const Transfer& transfer) {
    if (transfer.owner != nullptr) transfer.owner->on_failed(error);
  };
  for (const auto& [number, slot] : slots_) {
    for (const Transfer& each : slot.to_send) notify(each);
    for (const Transfer& each : slot.to_receive) notify(each);
  }
  for (const Outgoing& each : outgoing_) notify(each.transfer);
  notify(std::exchange(incoming_, {}));
  slots_.clear();
  outgoing_.clear();
}

void Link::fail(const std::exception_ptr& error) {
  Lock lock(mutex_);
  end_and_notify(lock, error);
}

void Link::end_and_notify(Lock& lock, const std::exception_ptr& error) {
  const bool ends = !error_ && is_same_process();
  end(error);
  lock.unlock();
  if (ends) events_.on_failed(rank_);
}

void Link::cancel(const TransferOwner* owner) {
  Lock lock(mutex_);
  const auto belongs_to_owner = [&](const Transfer& each) { return each.owner == owner; };
  bool was_announced = false;
  for (auto& [number, slot] : slots_) {
    was_announced |= std::erase_if(slot.to_send, belongs_to_owner) > 0;
    for (Transfer& each : slot.to_receive) {
      if (belongs_to_owner(each)) each = {.at = nullptr, .bytes = each.bytes, .owner = nullptr};
    }
  }
  if (incoming_.owner == owner) incoming_.owner = nullptr;
  was_announced |= std::erase_if(outgoing_, [&](const Outgoing& each) {
                     return belongs_to_owner(each.transfer);
                   }) > 0;
  // If the lock were released before the connection ends, another thread could send the next header
  // as the rest of a message that was sent in part.
  if (was_announced)
    end_and_notify(lock, connection_error(rank_, "this rank has cancelled a message to it"));
}

}  // namespace hasten
