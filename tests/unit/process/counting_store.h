// A store in this process that counts the messages that a real store would get. Its ranks are
// threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace hasten {

class CountingStore : public c10d::HashStore {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using c10d::Store::set;
  using c10d::Store::wait;

  void set(const std::string& key, const Bytes& value) override {
    ++messages;
    HashStore::set(key, value);
  }
  Bytes get(const std::string& key) override {
    ++messages;
    return HashStore::get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    ++messages;
    return HashStore::add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++messages;
    return HashStore::check(keys);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& limit) override {
    ++messages;
    HashStore::wait(keys, limit);
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    ++messages;
    return HashStore::multiGet(keys);
  }

  std::atomic<std::int64_t> messages = 0;
};

// Runs each rank in a thread and throws the first exception.
inline void run_in_threads(std::int64_t size, const std::function<void(std::int64_t)>& rank_main) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        rank_main(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace hasten
