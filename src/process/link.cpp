#include "process/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// A header and the beginning of its message go together: one call of the system, one TLS record.
constexpr std::size_t kStaging = std::size_t{16} << 10;
// In one turn; then other threads may add transfers.
constexpr std::size_t kTurn = std::size_t{1} << 20;

}  // namespace

Link::Link(int rank, std::unique_ptr<rendezvous::ByteStream> stream, const Events& events)
    : rank_(rank), stream_(std::move(stream)), events_(events), staging_(kStaging) {}

void Link::check_open() const {
  if (why_ended_.empty()) return;
  throw IoError("process.rank-missing",
                {.what = str("the connection with rank ", rank_, " has ended"),
                 .got = why_ended_,
                 .hint = "that rank has probably ended: its own output says why"});
}

bool Link::is_open() const {
  const Lock lock(turn_);
  return why_ended_.empty();
}

void Link::send(const Transfer& transfer, std::uint64_t number) {
  Lock lock(turn_);
  check_open();
  Slot& slot = slots_[number];
  if (slot.ready > 0) {
    --slot.ready;
    enqueue(Kind::data, number, transfer);
    if (slot.is_idle()) slots_.erase(number);
  } else {
    slot.to_send.push_back(transfer);
    enqueue(Kind::offer, number);
  }
  write(lock);
  tell_interest();
}

void Link::receive(const Transfer& transfer, std::uint64_t number) {
  Lock lock(turn_);
  check_open();
  give(transfer, number);
  write(lock);
  tell_interest();
}

bool Link::receive_offered(const Transfer& transfer, std::uint64_t number) {
  Lock lock(turn_);
  const auto slot = slots_.find(number);
  if (!why_ended_.empty() || slot == slots_.end() || slot->second.offered == 0) return false;
  give(transfer, number);
  write(lock);
  tell_interest();
  return true;
}

void Link::give(const Transfer& transfer, std::uint64_t number) {
  Slot& slot = slots_[number];
  slot.to_receive.push_back(transfer);
  ++slot.asked;
  if (slot.offered > 0) {
    --slot.offered;
    ++slot.answered;
  }
  enqueue(Kind::ready, number);
}

void Link::enqueue(Kind kind, std::uint64_t slot, const Transfer& transfer) {
  outgoing_.push_back(
      {.header = {.kind = kind, .slot = slot, .bytes = transfer.bytes}, .transfer = transfer});
}

void Link::advance() {
  Lock lock(turn_);
  if (!why_ended_.empty()) return;
  while (read()) {
    lock.unlock();
    lock.lock();
  }
  write(lock);
  if (!stream_->why_ended().empty()) end(stream_->why_ended());
  tell_interest();
  const auto offers = std::exchange(new_offers_, {});
  const bool has_ended = !why_ended_.empty();
  lock.unlock();
  for (const std::uint64_t slot : offers) events_.offered(rank_, slot);
  if (has_ended) events_.failed(rank_);
}

// A connection that is found to have ended stays as it is until advance() finds it, which the
// interest in writing makes the owner call: so the other events come from its thread alone.
void Link::write(Lock& lock) {
  std::size_t turn = 0;
  while (why_ended_.empty() && !outgoing_.empty()) {
    const std::size_t before = outgoing_.front().sent;
    if (!write_front()) return;
    turn += outgoing_.empty() ? sizeof(Header) : outgoing_.front().sent - before;
    if (turn < kTurn) continue;
    turn = 0;
    lock.unlock();
    lock.lock();
  }
}

// False if the connection takes no more for now.
bool Link::write_front() {
  Outgoing& front = outgoing_.front();
  const std::size_t all = sizeof(Header) + front.transfer.bytes;
  std::ptrdiff_t now = 0;
  if (front.sent < sizeof(Header)) {
    std::memcpy(staging_.data(), &front.header, sizeof(Header));
    const std::size_t staged = std::min(kStaging, all);
    if (staged > sizeof(Header))
      std::memcpy(staging_.data() + sizeof(Header), front.transfer.at, staged - sizeof(Header));
    now = stream_->write(staging_.data() + front.sent, staged - front.sent);
  } else {
    const std::size_t from = front.sent - sizeof(Header);
    now = stream_->write(front.transfer.at + from, std::min(kTurn, front.transfer.bytes - from));
  }
  if (now <= 0) return false;
  front.sent += static_cast<std::size_t>(now);
  if (front.sent < all) return true;
  TransferOwner* const owner = front.transfer.owner;
  outgoing_.pop_front();
  if (owner != nullptr) owner->sent(rank_);
  return true;
}

// True if there may be more to read at once.
bool Link::read() {
  std::size_t turn = 0;
  while (why_ended_.empty() && turn < kTurn) {
    const std::size_t before = got_;
    if (!read_some()) return false;
    turn += got_ > before ? got_ - before : sizeof(Header);
  }
  return why_ended_.empty();
}

bool Link::read_some() {
  std::ptrdiff_t now = 0;
  if (got_ < sizeof(Header)) {
    now = stream_->read(reinterpret_cast<std::byte*>(&header_) + got_, sizeof(Header) - got_);
  } else {
    const std::size_t from = got_ - sizeof(Header), left = header_.bytes - from;
    // Nobody waits for it any more: it is read and left out.
    const bool is_wanted = incoming_.owner != nullptr;
    now = is_wanted ? stream_->read(incoming_.at + from, std::min(kTurn, left))
                    : stream_->read(staging_.data(), std::min(kStaging, left));
  }
  if (now <= 0) return false;
  got_ += static_cast<std::size_t>(now);
  if (got_ == sizeof(Header) && !take_header()) return false;
  if (got_ == sizeof(Header) + header_.bytes) finish_message();
  return true;
}

// False if the other rank has said what it may not.
bool Link::take_header() {
  Slot& slot = slots_[header_.slot];
  incoming_ = {};
  const bool is_notice = header_.kind == Kind::ready || header_.kind == Kind::offer;
  if (!is_notice && !slot.to_receive.empty()) {
    incoming_ = slot.to_receive.front();
    if (header_.bytes <= incoming_.bytes) {
      slot.to_receive.pop_front();
      return true;
    }
    // It is still among those of the slot, which end() tells.
    const std::size_t room = std::exchange(incoming_, {}).bytes;
    end(str("rank ", rank_, " has sent ", header_.bytes, " bytes where ", room,
            " were expected: every rank calls the same collectives in the same order, with tensors "
            "of the same sizes"));
    return false;
  }
  if (is_notice && header_.bytes == 0) return true;
  end(str("rank ", rank_, " has sent what nobody has asked for"));
  return false;
}

void Link::finish_message() {
  got_ = 0;
  Slot& slot = slots_[header_.slot];
  if (header_.kind == Kind::data || header_.kind == Kind::offered) {
    --slot.asked;
    if (header_.kind == Kind::offered) --slot.answered;
    if (incoming_.owner != nullptr) std::exchange(incoming_.owner, nullptr)->received(rank_);
  } else if (header_.kind == Kind::offer) {
    // One that was on its way when this rank gave the memory is answered already.
    const bool is_answered = slot.answered < slot.asked;
    is_answered ? ++slot.answered : ++slot.offered;
    if (!is_answered) new_offers_.push_back(header_.slot);
  } else if (slot.to_send.empty()) {
    ++slot.ready;
  } else {
    enqueue(Kind::offered, header_.slot, slot.to_send.front());
    slot.to_send.pop_front();
  }
  if (slot.is_idle()) slots_.erase(header_.slot);
}

void Link::tell_interest() {
  const bool wants = why_ended_.empty() && !outgoing_.empty();
  if (why_ended_.empty() && wants != wants_to_write_) events_.interest(rank_, wants);
  wants_to_write_ = wants;
}

void Link::end(const std::string& why) {
  if (!why_ended_.empty()) return;
  why_ended_ = why.empty() ? "it was closed" : why;
  shutdown(stream_->file(), SHUT_RDWR);  // the other side hears of it at once
  const std::string text = str("the connection with rank ", rank_, " has ended: ", why_ended_);
  const auto tell = [&](const Transfer& transfer) {
    if (transfer.owner != nullptr) transfer.owner->failed(text);
  };
  for (const auto& [number, slot] : slots_) {
    for (const Transfer& each : slot.to_send) tell(each);
    for (const Transfer& each : slot.to_receive) tell(each);
  }
  for (const Outgoing& each : outgoing_) tell(each.transfer);
  tell(std::exchange(incoming_, {}));
  slots_.clear();
  outgoing_.clear();
}

void Link::fail(const std::string& why) {
  Lock lock(turn_);
  const bool was_over = !why_ended_.empty();
  end(why);
  lock.unlock();
  if (!was_over) events_.failed(rank_);
}

void Link::forget(const TransferOwner* owner) {
  Lock lock(turn_);
  const auto is_its = [&](const Transfer& each) { return each.owner == owner; };
  for (auto& [number, slot] : slots_) {
    std::erase_if(slot.to_send, is_its);
    for (Transfer& each : slot.to_receive) {
      if (is_its(each)) each = {.at = nullptr, .bytes = each.bytes, .owner = nullptr};
    }
  }
  if (incoming_.owner == owner) incoming_.owner = nullptr;
  const bool is_half_written =
      !outgoing_.empty() && is_its(outgoing_.front().transfer) && outgoing_.front().sent > 0;
  std::erase_if(outgoing_, [&](const Outgoing& each) { return is_its(each.transfer); });
  tell_interest();
  lock.unlock();
  if (is_half_written) fail("a message was given up in its middle");
}

}  // namespace hasten
