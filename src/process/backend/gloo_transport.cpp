#include "process/backend/gloo_transport.h"

#include <gloo/transport/device.h>
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <utility>

#include "base/running_clock.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/backend/link.h"
#include "process/backend/link_loop.h"
#include "process/consensus/store_exchange.h"

namespace hasten {
namespace {

using std::chrono::milliseconds;
namespace transport = gloo::transport;
using Streams = std::vector<std::unique_ptr<rendezvous::ByteStream>>;

class GroupConnections;

// A range of memory that messages are sent from or received into.
class Buffer : public transport::UnboundBuffer, public TransferOwner {
 public:
  Buffer(std::shared_ptr<GroupConnections> messages, void* at, std::size_t bytes)
      : UnboundBuffer(at, bytes), connections_(std::move(messages)) {}
  ~Buffer() override;

  bool waitRecv(int* rank, milliseconds timeout) override {
    return wait(receiving_, rank, timeout);
  }
  bool waitSend(int* rank, milliseconds timeout) override { return wait(sending_, rank, timeout); }
  void abortWaitRecv() override { abort(receiving_); }
  void abortWaitSend() override { abort(sending_); }
  void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override;

  void on_received(int rank) override { complete(receiving_, rank); }
  void on_sent(int rank) override { complete(sending_, rank); }
  void on_failed(const std::exception_ptr& error) override;

 private:
  struct Direction {
    const char* name;
    int completions = 0;
    int rank = -1;  // the other rank of the last completed transfer
    bool is_aborted = false;
  };

  Transfer transfer(std::size_t offset, std::size_t bytes);
  template <class Begin>
  void begin(const Begin& begin);
  bool wait(Direction& direction, int* rank, milliseconds timeout);
  void complete(Direction& direction, int rank);
  void abort(Direction& direction);
  std::exception_ptr timeout_error(const char* what, milliseconds timeout) const;

  std::shared_ptr<GroupConnections> connections_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Direction sending_{"send"}, receiving_{"receive"};
  int pending_ = 0;           // transfers that have not completed or failed yet
  std::exception_ptr error_;  // the error of the first failed transfer
};

// Gloo checks that each rank has a pair, and closes the pairs, but sends only through buffers.
class Pair : public transport::Pair {
 public:
  explicit Pair(Link& link) : link_(link) {}
  const transport::Address& address() const override { throw_unsupported(); }
  void connect(const std::vector<char>&) override { throw_unsupported(); }
  void close() override {
    link_.fail(std::make_exception_ptr(
        IoError("process.rank-missing", {.what = "this rank has closed the group's connections"})));
  }
  void setSync(bool, bool) override {}
  std::unique_ptr<transport::Buffer> createSendBuffer(int, void*, std::size_t) override {
    throw_unsupported();
  }
  std::unique_ptr<transport::Buffer> createRecvBuffer(int, void*, std::size_t) override {
    throw_unsupported();
  }
  bool isConnected() override { return link_.is_open(); }
  void send(transport::UnboundBuffer*, std::uint64_t, std::size_t, std::size_t) override {
    throw_unsupported();
  }
  void recv(transport::UnboundBuffer*, std::uint64_t, std::size_t, std::size_t) override {
    throw_unsupported();
  }

 private:
  [[noreturn]] static void throw_unsupported() {
    throw std::logic_error("hasten's transport for Gloo sends through buffers without a pair");
  }
  Link& link_;
};

// The connections of one group.
class GroupConnections : public transport::Context,
                         public std::enable_shared_from_this<GroupConnections> {
 public:
  GroupConnections(int rank, int size, Streams streams)
      : Context(rank, size), streams_(std::move(streams)) {}

  // The ranks are connected already, so the store is not used.
  void createAndConnectAllPairs(std::shared_ptr<gloo::IStore>) override {
    events_ = {.on_write_interest_changed =
                   [this](int other, bool wants) { loop_.set_write_interest(link(other), wants); },
               .on_offered = [this](int other, std::uint64_t slot) { match(other, slot); },
               .on_failed = [this](int other) { drop(other); }};
    for (int other = 0; other < size; ++other) {
      const auto at = static_cast<std::size_t>(other);
      links_.push_back(other == rank
                           ? nullptr
                           : std::make_unique<Link>(other, std::move(streams_[at]), events_));
      if (links_[at]) pairs_[at] = std::make_unique<Pair>(*links_[at]);
    }
    std::vector<Link*> all;
    for (const auto& each : links_) {
      if (each) all.push_back(each.get());
    }
    loop_.start(std::move(all));
  }
  std::unique_ptr<transport::Pair>& createPair(int) override {
    throw std::logic_error("hasten's transport for Gloo connects all ranks at once");
  }
  std::unique_ptr<transport::UnboundBuffer> createUnboundBuffer(void* at,
                                                                std::size_t bytes) override {
    return std::make_unique<Buffer>(shared_from_this(), at, bytes);
  }

  Link& link(int other) {
    TORCH_CHECK(other >= 0 && other < size && other != rank, "messages of rank ", rank,
                ": got rank ", other, " as the other side, expected another rank below ", size);
    return *links_[static_cast<std::size_t>(other)];
  }

  // Receives a message from any of `ranks`. c10d includes this rank among them, so it is removed.
  void receive_from_any(std::vector<int> ranks, const Transfer& transfer, std::uint64_t slot) {
    std::erase(ranks, rank);
    const std::lock_guard lock(any_mutex_);
    for (const int other : ranks) {
      if (link(other).receive_offered(transfer, slot)) return;
    }
    any_source_receives_.push_back({slot, transfer, std::move(ranks)});
    fail_unreachable_receives();
  }

  void fail_all(const std::exception_ptr& error) {
    for (const auto& each : links_) {
      if (each) each->fail(error);
    }
  }

  void cancel(const TransferOwner* owner) {
    {
      const std::lock_guard lock(any_mutex_);
      any_source_receives_.remove_if(
          [&](const AnySourceReceive& each) { return each.transfer.owner == owner; });
    }
    for (const auto& each : links_) {
      if (each) each->cancel(owner);
    }
  }

 private:
  struct AnySourceReceive {
    std::uint64_t slot;
    Transfer transfer;
    std::vector<int> ranks;
  };

  // Gives a message that rank `other` offers to the first receiver that waits for the slot and
  // accepts that rank.
  void match(int other, std::uint64_t slot) {
    const std::lock_guard lock(any_mutex_);
    const auto waiting =
        std::find_if(any_source_receives_.begin(), any_source_receives_.end(),
                     [&](const AnySourceReceive& each) {
                       return each.slot == slot && std::find(each.ranks.begin(), each.ranks.end(),
                                                             other) != each.ranks.end();
                     });
    if (waiting != any_source_receives_.end() &&
        link(other).receive_offered(waiting->transfer, slot))
      any_source_receives_.erase(waiting);
  }

  void drop(int other) {
    loop_.drop(link(other));
    const std::lock_guard lock(any_mutex_);
    fail_unreachable_receives();
  }

  static std::exception_ptr no_sender_error() {
    return std::make_exception_ptr(IoError(
        "process.rank-missing", {.what = "a message from any rank",
                                 .got = "no open connection to any rank that could send it"}));
  }

  // Fails the receivers whose ranks have all ended. The caller holds any_mutex_.
  void fail_unreachable_receives() {
    any_source_receives_.remove_if([&](const AnySourceReceive& each) {
      const bool is_reachable = std::any_of(each.ranks.begin(), each.ranks.end(),
                                            [&](int other) { return link(other).is_open(); });
      if (!is_reachable) each.transfer.owner->on_failed(no_sender_error());
      return !is_reachable;
    });
  }

  Streams streams_;  // moved into links_ when the group connects
  Link::Events events_;
  std::vector<std::unique_ptr<Link>> links_;
  std::mutex any_mutex_;  // locked before a link's own lock
  std::list<AnySourceReceive> any_source_receives_;
  LinkLoop loop_;  // last, so that it ends before the links that it reads
};

Buffer::~Buffer() {
  bool is_waited_for = false;
  {
    const std::lock_guard lock(mutex_);
    is_waited_for = pending_ > 0;
  }
  if (is_waited_for) connections_->cancel(this);
}

Transfer Buffer::transfer(std::size_t offset, std::size_t bytes) {
  if (bytes == kUnspecifiedByteCount) bytes = size - std::min(offset, size);
  TORCH_CHECK(offset <= size && bytes <= size - offset, "a message: got ", bytes,
              " bytes at offset ", offset, ", expected a range within the buffer of ", size,
              " bytes");
  return {.at = static_cast<std::byte*>(ptr) + offset, .bytes = bytes, .owner = this};
}

// Counts a transfer before it begins, because it may end at once.
template <class Begin>
void Buffer::begin(const Begin& begin) {
  {
    const std::lock_guard lock(mutex_);
    ++pending_;
  }
  try {
    begin();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --pending_;
    throw;
  }
}

void Buffer::send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  const Transfer sent = transfer(offset, bytes);
  begin([&] { connections_->link(rank).send(sent, slot); });
}

void Buffer::recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  const Transfer received = transfer(offset, bytes);
  begin([&] { connections_->link(rank).receive(received, slot); });
}

void Buffer::recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
                  std::size_t bytes) {
  const Transfer received = transfer(offset, bytes);
  begin([&] { connections_->receive_from_any(std::move(ranks), received, slot); });
}

void Buffer::complete(Direction& direction, int rank) {
  const std::lock_guard lock(mutex_);
  --pending_;
  ++direction.completions;
  direction.rank = rank;
  changed_.notify_all();
}

void Buffer::on_failed(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  --pending_;
  if (!error_) error_ = error;
  changed_.notify_all();
}

void Buffer::abort(Direction& direction) {
  const std::lock_guard lock(mutex_);
  direction.is_aborted = true;
  changed_.notify_all();
}

std::exception_ptr Buffer::timeout_error(const char* what, milliseconds timeout) const {
  return std::make_exception_ptr(
      IoError("process.rank-missing",
              {.what = str("a message between ranks, on rank ", connections_->rank),
               .got = str("a ", what, " that has not completed"),
               .expected = str("completion within ", timeout.count(), " ms"),
               .hint = "make every rank call the same collectives in the same order"}));
}

bool Buffer::wait(Direction& direction, int* rank, milliseconds timeout) {
  if (timeout == transport::kUnsetTimeout) timeout = connections_->getTimeout();
  std::unique_lock lock(mutex_);
  RunningClock clock;
  const auto deadline = clock.now() + timeout;
  while (direction.completions == 0 && !direction.is_aborted && !error_) {
    const auto left = deadline - clock.now();
    if (left <= left.zero()) {
      lock.unlock();
      const auto error = timeout_error(direction.name, timeout);
      connections_->fail_all(error);
      std::rethrow_exception(error);
    }
    changed_.wait_for(lock, std::min<RunningClock::Clock::duration>(left, RunningClock::kMaxStep));
  }
  if (direction.completions > 0) {
    --direction.completions;
    if (rank != nullptr) *rank = direction.rank;
    return true;
  }
  if (std::exchange(direction.is_aborted, false)) return false;
  std::rethrow_exception(error_);
}

// Serves one group. Its connections exist already, because c10d would turn an error of connecting
// into an error of its own type.
class Device : public transport::Device {
 public:
  explicit Device(Streams streams) : streams_(std::move(streams)) {}

  std::string str() const override { return "hasten: connections between the job's ranks"; }
  const std::string& getPCIBusID() const override { return no_bus_; }
  std::shared_ptr<transport::Context> createContext(int rank, int size) override {
    TORCH_CHECK(std::ssize(streams_) == size, "connections of a group: got ", streams_.size(),
                ", expected ", size);
    return std::make_shared<GroupConnections>(rank, size, std::exchange(streams_, {}));
  }

 private:
  Streams streams_;
  std::string no_bus_;
};

}  // namespace

std::shared_ptr<transport::Device> gloo_device(const rendezvous::MeshOptions& options,
                                               c10d::Store& store, milliseconds timeout) {
  const auto exchange = [&](const std::string& key, const std::string& own) {
    return gather_texts(store, "mesh/" + key, options.rank, options.size, own);
  };
  return std::make_shared<Device>(rendezvous::connect_mesh(options, exchange, timeout));
}

}  // namespace hasten
