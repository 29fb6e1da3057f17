// File: process/arrival.h (internal)
// The ranks of a group wait until all of them are there, and leave where they run for a report on
// one that does not answer later.
//
//   arrive(*store, rank, size, 10min);
//   const std::vector<Whereabouts> where = whereabouts_of_all(*store, size);
//
// Each rank sends a few messages, however many ranks there are. Throws IoError
// "process.rank-missing", which names the ranks that have not come in time; what the store throws.
// Thread rule: that of the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "process/late_report.h"

namespace hasten {

// Called once by each rank, with a store of the group alone.
void arrive(c10d::Store& store, std::int64_t rank, std::int64_t size,
            std::chrono::milliseconds timeout);

// By rank, after arrive().
std::vector<Whereabouts> whereabouts_of_all(c10d::Store& store, std::int64_t size);

}  // namespace hasten
