// File: process/consensus/job_store.h (internal)
// The job's keys and values as a c10d::Store, for c10d's process groups. Throws what
// rendezvous/store_client.h throws. Thread rule: any thread; calls run one after the other, and a
// clone has its own connection.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rendezvous/store_client.h"

namespace hasten {

class JobStore : public c10d::Store {
 public:
  // `prefix` is prepended to every key. `timeout` is the default limit of calls that wait.
  JobStore(Endpoint store, std::string token, std::string prefix,
           std::chrono::milliseconds timeout);

  using Bytes = std::vector<std::uint8_t>;
  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }
  std::vector<std::string> listKeys() override;

 private:
  std::string add_prefix(const std::string& key) const { return prefix_ + key; }
  std::vector<std::string> add_prefix(std::vector<std::string> keys) const;

  rendezvous::StoreClient client_;
  std::string prefix_;
};

}  // namespace hasten
