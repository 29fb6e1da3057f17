// File: process/all_say.h (internal)
// A choice that all ranks have to make alike: whether each of them can. Throws what the store does.
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hasten {

// Waits for every rank's word, within the store's timeout. `question` is asked once a store.
bool all_say(c10d::Store& store, const std::string& question, std::int64_t rank, std::int64_t size,
             bool own);

}  // namespace hasten
