// The exchanges of ranks through a store, and their numbers of messages.
#include "process/consensus/store_exchange.h"

#include <doctest/doctest.h>

#include "hasten/base/text.h"
#include "unit/process/counting_store.h"

namespace process_store_exchange_test {

using namespace hasten;

TEST_CASE(
    "store exchange: a value is true if it is true on every rank, at three messages per rank") {
  for (const std::int64_t size : {1, 2, 60}) {
    CountingStore store;
    std::atomic<std::int64_t> yes = 0;
    run_in_threads(size,
                   [&](std::int64_t) { yes += is_true_on_all_ranks(store, "all", size, true); });
    CHECK(yes == size);
    CHECK(store.messages <= 3 * size);
    run_in_threads(size, [&](std::int64_t rank) {
      yes += is_true_on_all_ranks(store, "one not", size, rank != 0);
    });
    CHECK(yes == size);
    run_in_threads(size,
                   [&](std::int64_t) { yes += is_true_on_all_ranks(store, "none", size, false); });
    CHECK(yes == size);
  }
}

TEST_CASE(
    "store exchange: a rank that sets the result to false does not wait, and none waits for it") {
  CountingStore store;
  set_false_on_all_ranks(store, "denied");
  CHECK(store.messages == 1);
  std::atomic<std::int64_t> yes = 0;
  run_in_threads(3, [&](std::int64_t) { yes += is_true_on_all_ranks(store, "denied", 4, true); });
  CHECK(yes == 0);
}

TEST_CASE(
    "store exchange: the texts of all ranks are gathered in order, with two messages per rank") {
  constexpr std::int64_t kSize = 60;
  CountingStore store;
  run_in_threads(kSize, [&](std::int64_t rank) {
    const auto texts = gather_texts(store, "text", rank, kSize, str("of ", rank));
    if (texts.size() != kSize || texts[7] != "of 7") throw std::runtime_error("other texts");
  });
  CHECK(store.messages == 2 * kSize);
}

TEST_CASE("store exchange: the existence of many keys is checked with few messages") {
  CountingStore store;
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(str("key ", i));
  for (const std::string& key : keys) store.set(key, "value");
  store.messages = 0;
  CHECK(keys_exist(store, keys) == std::vector<bool>(1000, true));
  CHECK(store.messages == 1);
  store.deleteKey("key 3");
  store.deleteKey("key 999");
  std::vector<bool> expected(1000, true);
  expected[3] = expected[999] = false;
  store.messages = 0;
  CHECK(keys_exist(store, keys) == expected);
  CHECK(store.messages < 50);
  CHECK(keys_exist(store, {}).empty());
  CHECK(keys_exist(store, {"nothing", "of it"}) == std::vector<bool>(2, false));
}

}  // namespace process_store_exchange_test
