// File: process/all_say.h (internal)
// A word of each rank, by a store that all of them have. Waits for every rank, within the store's
// timeout; a question is asked once a store. Throws what the store does.
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hasten {

// What stands at a key.
std::string text_at(c10d::Store& store, const std::string& key);

// By rank.
std::vector<std::string> words_of_all(c10d::Store& store, const std::string& question,
                                      std::int64_t rank, std::int64_t size, const std::string& own);

// A choice that all have to make alike: whether each of them can.
bool all_say(c10d::Store& store, const std::string& question, std::int64_t rank, std::int64_t size,
             bool own);

}  // namespace hasten
