#include "process/consensus/job_store.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::string_view text_of(const JobStore::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
JobStore::Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

JobStore::JobStore(Endpoint store, std::string token, std::string prefix,
                   std::chrono::milliseconds timeout)
    : c10d::Store(timeout),
      client_(std::move(store), std::move(token), timeout),
      prefix_(std::move(prefix)) {}

std::vector<std::string> JobStore::add_prefix(std::vector<std::string> keys) const {
  for (std::string& key : keys) key.insert(0, prefix_);
  return keys;
}

c10::intrusive_ptr<c10d::Store> JobStore::clone() {
  return c10::make_intrusive<JobStore>(client_.store(), client_.token(), prefix_, timeout_);
}

void JobStore::set(const std::string& key, const Bytes& value) {
  client_.set(add_prefix(key), text_of(value));
}

JobStore::Bytes JobStore::compareSet(const std::string& key, const Bytes& expected,
                                     const Bytes& desired) {
  return bytes_of(client_.compare_set(add_prefix(key), text_of(expected), text_of(desired)));
}

JobStore::Bytes JobStore::get(const std::string& key) {
  return bytes_of(client_.get({add_prefix(key)}, timeout_).front());
}

std::int64_t JobStore::add(const std::string& key, std::int64_t value) {
  return client_.add(add_prefix(key), value);
}
bool JobStore::deleteKey(const std::string& key) { return client_.erase(add_prefix(key)); }
bool JobStore::check(const std::vector<std::string>& keys) {
  return client_.check(add_prefix(keys));
}
std::int64_t JobStore::getNumKeys() { return client_.count(); }
void JobStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void JobStore::wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) {
  client_.wait(add_prefix(keys), timeout);
}

void JobStore::append(const std::string& key, const Bytes& value) {
  client_.append(add_prefix(key), text_of(value));
}

std::vector<JobStore::Bytes> JobStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<Bytes> values;
  for (const std::string& value : client_.get(add_prefix(keys), timeout_))
    values.push_back(bytes_of(value));
  return values;
}

void JobStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values.at(i));
}

std::vector<std::string> JobStore::listKeys() {
  std::vector<std::string> names;
  for (const std::string& name : client_.list()) {
    if (starts_with(name, prefix_)) names.push_back(name.substr(prefix_.size()));
  }
  return names;
}

}  // namespace hasten
