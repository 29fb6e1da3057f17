// File: process/consensus/store_exchange.h (internal)
// Exchanges texts between the ranks of a group through their common store. Each rank sends a few
// messages, independent of the number of ranks. If each rank sent one message for each other rank,
// a thousand ranks would send a million messages.
//
//   if (is_true_on_all_ranks(*store, "memory", size, opened)) ...  // the same answer on every rank
//   const auto texts = gather_texts(*store, "call", rank, size, own);
//
// A prefix may be used once per store. Throws what the store throws. Thread rule: the same as for
// the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hasten {

// The rank of this process in a group of `size` ranks, and how long it waits for another rank.
struct RankOptions {
  std::int64_t rank = 0, size = 1;
  std::chrono::milliseconds limit{};
};

// Returns the value of a key. Waits for it within the store's timeout.
std::string text_at(c10d::Store& store, const std::string& key);
// Sends a single message and returns the values of the keys. Waits for all of them.
std::vector<std::string> texts_at(c10d::Store& store, const std::vector<std::string>& keys);

// Returns for each key whether the store has it. This takes one message if no key is missing, and a
// few for each missing key.
std::vector<bool> keys_exist(c10d::Store& store, const std::vector<std::string>& keys);

// Returns whether `own` is true on every rank. Waits for every rank.
bool is_true_on_all_ranks(c10d::Store& store, const std::string& prefix, std::int64_t size,
                          bool own);

// Makes is_true_on_all_ranks() return false on every other rank. A rank calls this instead of
// is_true_on_all_ranks(). It does not wait for the others.
void set_false_on_all_ranks(c10d::Store& store, const std::string& prefix);

// Returns the texts of all ranks, by rank. Waits for every rank. The reply grows with the number of
// ranks, so use this for rare exchanges only.
std::vector<std::string> gather_texts(c10d::Store& store, const std::string& prefix,
                                      std::int64_t rank, std::int64_t size, const std::string& own);

}  // namespace hasten
