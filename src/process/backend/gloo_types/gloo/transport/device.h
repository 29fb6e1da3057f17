// Gloo's transport types as they are in LibTorch's libtorch_cpu.so. hasten derives from four of
// them (process/backend/gloo_transport.cpp), so their data members and the order of their virtual
// functions must be those of Gloo's own headers. See gloo_types/README.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace gloo {

class IStore;

namespace transport {

constexpr auto kUnsetTimeout = std::chrono::milliseconds(-1);

class Buffer;

// The key of a one-sided transfer, which no collective of c10d uses.
class RemoteKey {
 public:
  virtual ~RemoteKey() = default;
};

class Address {
 public:
  virtual ~Address() = 0;
  virtual std::string str() const = 0;
  virtual std::vector<char> bytes() const = 0;
};

class UnboundBuffer {
 public:
  static constexpr auto kUnspecifiedByteCount = std::numeric_limits<std::size_t>::max();

  UnboundBuffer(void* at, std::size_t bytes) : ptr(at), size(bytes) {}
  virtual ~UnboundBuffer() = 0;

  void* const ptr;
  const std::size_t size;

  virtual bool waitRecv(int* rank, std::chrono::milliseconds timeout) = 0;
  virtual bool waitSend(int* rank, std::chrono::milliseconds timeout) = 0;
  virtual void abortWaitRecv() = 0;
  virtual void abortWaitSend() = 0;
  virtual void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  virtual void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  virtual void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
                    std::size_t bytes) = 0;
  virtual std::unique_ptr<RemoteKey> getRemoteKey() const { return nullptr; }
  virtual void put(const RemoteKey&, std::uint64_t, std::size_t, std::size_t, std::size_t) {}
  virtual void get(const RemoteKey&, std::uint64_t, std::size_t, std::size_t, std::size_t) {}
};

class Pair {
 public:
  virtual ~Pair() = 0;
  virtual const Address& address() const = 0;
  virtual void connect(const std::vector<char>& bytes) = 0;
  virtual void close() = 0;
  virtual void setSync(bool enable, bool busy_poll) = 0;
  virtual std::unique_ptr<Buffer> createSendBuffer(int slot, void* at, std::size_t bytes) = 0;
  virtual std::unique_ptr<Buffer> createRecvBuffer(int slot, void* at, std::size_t bytes) = 0;
  virtual bool isConnected() = 0;
  virtual void send(UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                    std::size_t bytes) = 0;
  virtual void recv(UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
                    std::size_t bytes) = 0;
  virtual void put(UnboundBuffer*, const RemoteKey&, std::uint64_t, std::size_t, std::size_t,
                   std::size_t) {}
  virtual void get(UnboundBuffer*, const RemoteKey&, std::uint64_t, std::size_t, std::size_t,
                   std::size_t) {}

 protected:
  int localRank_ = 0;
};

class Context {
 public:
  Context(int rank, int size);
  virtual ~Context();

  const int rank;
  const int size;

  virtual std::unique_ptr<Pair>& getPair(int rank);
  virtual std::unique_ptr<Pair>& createPair(int rank) = 0;
  virtual void createAndConnectAllPairs(std::shared_ptr<IStore> store);
  virtual std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* at, std::size_t bytes) = 0;
  virtual std::unique_ptr<RemoteKey> deserializeRemoteKey(const std::string&) { return nullptr; }

  std::chrono::milliseconds getTimeout() const { return timeout_; }

 protected:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::chrono::milliseconds timeout_;
  // Gloo's own transports count their transfers in these two vectors, which stay empty here.
  std::vector<char> pendingOperations_, expectedNotifications_;
};

class Device {
 public:
  virtual ~Device() = 0;
  virtual std::string str() const = 0;
  virtual const std::string& getPCIBusID() const = 0;
  virtual int getInterfaceSpeed() const { return 0; }
  virtual bool hasGPUDirect() const { return false; }
  virtual std::shared_ptr<Context> createContext(int rank, int size) = 0;
};

}  // namespace transport
}  // namespace gloo
