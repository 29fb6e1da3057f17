// File: process/ask_all.h (internal)
// What the ranks of a group tell each other by a store that all of them have. Each rank sends a few
// messages, however many ranks there are: one for each other rank would be a million with a
// thousand ranks.
//
//   if (holds_on_all(*store, "memory", size, opened)) ...     // the same answer on every rank
//   const auto texts = texts_of_all(*store, "call", rank, size, own);
//
// A question is asked once a store. Throws what the store does. Thread rule: that of the store.
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hasten {

// The value of a key. Waits for it within the store's timeout.
std::string text_at(c10d::Store& store, const std::string& key);
// The values of keys, with one message. Waits for all of them.
std::vector<std::string> texts_at(c10d::Store& store, const std::vector<std::string>& keys);

// For each key whether the store has it. One message where it has all, a few for each key that is
// missing.
std::vector<bool> which_exist(c10d::Store& store, const std::vector<std::string>& keys);

// Whether `own` is true on every rank. Waits for every rank.
bool holds_on_all(c10d::Store& store, const std::string& question, std::int64_t size, bool own);

// The texts of all ranks, by rank. Waits for every rank. The answer grows with the number of ranks,
// so it is for what is rarely asked.
std::vector<std::string> texts_of_all(c10d::Store& store, const std::string& question,
                                      std::int64_t rank, std::int64_t size, const std::string& own);

}  // namespace hasten
