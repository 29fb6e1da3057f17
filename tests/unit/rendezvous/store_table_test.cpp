// The time that requests cost the answering thread, and waits for keys that are set and erased.
#include "rendezvous/store_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "processor_time.h"
#include "slowdown.h"

namespace rendezvous_store_table_test {

namespace {

using hasten::thread_seconds;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

Packer request(StoreRequest kind, std::int64_t number = 1) {
  Packer packer;
  packer.number(number).number(static_cast<std::int64_t>(kind));
  return packer;
}

std::vector<std::string> keys_of(int count) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < count; ++rank)
    keys.push_back("attempt 0/group 0/arrival/location/" + std::to_string(rank));
  return keys;
}

struct Table {
  std::vector<std::pair<int, std::string>> answers;
  StoreTable table{[this](int connection, const std::string& message) {
    answers.emplace_back(connection, message);
  }};
  Clock::time_point now = Clock::now();

  void ask(int connection, const Packer& packer) {
    table.handle(connection, packer.bytes(), now);
    while (table.has_ready_request()) table.answer_ready_request();
  }
  void set(int connection, const std::string& key) {
    ask(connection, request(StoreRequest::set).text(key).text("value"));
  }
  void wait(int connection, const std::vector<std::string>& keys, std::int64_t number = 1) {
    ask(connection, request(StoreRequest::wait, number).number(1000).texts(keys));
  }
  // The status in the last answer, which follows the request's number.
  StoreStatus last() const {
    Unpacker fields(answers.back().second);
    fields.number();
    return static_cast<StoreStatus>(fields.number());
  }
};

TEST_CASE("store table: setting a key checks no waiter of another key") {
  Table job;
  constexpr int kWaiters = 20'000;
  const std::vector<std::string> keys = keys_of(kWaiters);
  const double began = thread_seconds();
  for (int i = 0; i < kWaiters; ++i) job.wait(i, {keys[static_cast<std::size_t>(i)]});
  for (int i = 0; i < kWaiters; ++i) job.set(kWaiters, "other " + std::to_string(i));
  CHECK(job.answers.size() == kWaiters);
  for (const std::string& key : keys) job.set(kWaiters, key);
  CHECK(job.answers.size() == 3 * kWaiters);
  CHECK(thread_seconds() - began < 2 * kSlowdown);
}

TEST_CASE("store table: a key that is erased at once still wakes its waiter") {
  Table job;
  job.wait(1, {"key"});
  job.table.handle(2, request(StoreRequest::set).text("key").text("value").bytes(), job.now);
  job.table.handle(2, request(StoreRequest::erase).text("key").bytes(), job.now);
  const auto to_waiter = std::ranges::count(job.answers, 1, &std::pair<int, std::string>::first);
  CHECK(to_waiter == 1);
}

TEST_CASE("store table: waits for other ranks' keys cost as much as their messages") {
  constexpr int kRanks = 1500;
  Table job;
  const std::vector<std::string> keys = keys_of(kRanks);
  std::vector<int> order(kRanks);
  for (int i = 0; i < kRanks; ++i) order[static_cast<std::size_t>(i)] = i;
  // The eight ranks of one machine come last.
  std::shuffle(order.begin(), order.end() - 8, std::mt19937(3));
  double longest = 0;
  const double began = thread_seconds();
  for (const int rank : order) {
    const double before = thread_seconds();
    job.set(rank, keys[static_cast<std::size_t>(rank)]);
    longest = std::max(longest, thread_seconds() - before);
    job.wait(rank, keys);
  }
  CHECK(job.answers.size() == 2 * kRanks);
  CHECK(thread_seconds() - began < 3 * kSlowdown);
  CHECK(longest < kSlowdown);
}

TEST_CASE("store table: checks of thousands of keys are cheap") {
  constexpr int kKeys = 4000, kQuestions = 200;
  Table job;
  const std::vector<std::string> keys = keys_of(kKeys);
  for (const std::string& key : keys) job.set(1, key);
  const double began = thread_seconds();
  for (int i = 0; i < kQuestions; ++i) {
    job.ask(1, request(StoreRequest::check).texts(keys));
    job.ask(1, request(StoreRequest::get).number(0).texts(keys));
  }
  CHECK((thread_seconds() - began) / kQuestions < 0.01 * kSlowdown);
  CHECK(job.last() == StoreStatus::done);
}

TEST_CASE("store table: a key that was erased can be waited for again") {
  Table job;
  job.set(1, "a");
  job.wait(2, {"a", "b", "c"});
  job.ask(1, request(StoreRequest::erase).text("a"));
  job.set(1, "b");
  job.set(1, "c");
  CHECK(job.answers.back().first == 1);
  job.set(1, "a");
  CHECK(job.answers.back().first == 2);
  CHECK_FALSE(job.table.next_deadline());
}

TEST_CASE("store table: a woken waiter whose time is over gets one answer") {
  Table job;
  job.wait(2, {"a"});
  job.table.handle(1, request(StoreRequest::set).text("a").text("").bytes(), job.now);
  job.table.tick(job.now + 2s);
  CHECK(job.last() == StoreStatus::done);
  while (job.table.has_ready_request()) job.table.answer_ready_request();
  CHECK(job.answers.size() == 2);
}

TEST_CASE("store table: every change that creates a key ends a wait for it") {
  for (const Packer& change : {request(StoreRequest::set).text("k").text(""),
                               request(StoreRequest::add).text("k").number(1),
                               request(StoreRequest::append).text("k").text("x"),
                               request(StoreRequest::compare_set).text("k").text("").text("x")}) {
    Table job;
    job.wait(2, {"k"});
    job.ask(1, change);
    CHECK(job.answers.back().first == 2);
  }
}

TEST_CASE("store table: after the time of a wait, few of many missing keys are named") {
  Table job;
  job.wait(1, keys_of(3));
  job.wait(2, keys_of(500));
  CHECK(job.table.next_deadline() == job.now + 1s);
  job.table.tick(job.now + 999ms);
  CHECK(job.answers.empty());
  job.table.tick(job.now + 1s);
  REQUIRE(job.answers.size() == 2);
  Unpacker few(job.answers[0].second), many(job.answers[1].second);
  for (Unpacker* each : {&few, &many}) each->number(), each->number();
  CHECK(few.number() == 0);
  CHECK(few.texts() == keys_of(3));
  CHECK(many.number() == 1);
  CHECK(many.texts() == keys_of(16));
  CHECK_FALSE(job.table.next_deadline());
}

TEST_CASE("store table: the next request of a connection ends its wait, and no other's") {
  Table job;
  job.wait(1, {"x"}, 1);
  job.wait(2, {"x"}, 1);
  job.wait(1, {"x"}, 2);  // the client no longer waits for the first answer
  job.set(3, "x");
  REQUIRE(job.answers.size() == 3);
  for (const auto& [connection, message] : job.answers) {
    if (connection == 1) CHECK(Unpacker(message).number() == 2);
  }
  job.wait(1, {"y"});
  job.table.remove_connection(1);
  CHECK_FALSE(job.table.next_deadline());
  job.set(3, "y");
  CHECK(job.answers.size() == 4);
}

}  // namespace

}  // namespace rendezvous_store_table_test
