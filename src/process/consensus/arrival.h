// File: process/consensus/arrival.h (internal)
// Waits until all ranks of a group have arrived. Each rank also stores where it runs, for a later
// report on a rank that does not answer.
//
//   wait_for_all_ranks(*store, rank, size, 10min);
//   const std::vector<RankLocation> locations = locations_of_all(*store, size);
//
// Each rank sends a few messages to the store, independent of the number of ranks. Throws IoError
// "process.rank-missing" with the ranks that have not arrived in time. Also throws what the store
// throws. Thread rule: the same as for the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/process_state.h"

namespace hasten {

// The machine and process of a rank. The ranks exchange it when the group is formed, so it is also
// known for a rank that no longer answers.
struct RankLocation {
  std::string host;
  std::string pid_namespace;  // the PID namespace of the process: pid_namespace_id()
  ProcessIdentity process;

  static RankLocation own();
  std::string to_text() const;
  static RankLocation from_text(const std::string& text);
};

// Each rank calls it once, with a store that only this group uses. `timeout` limits the wait.
void wait_for_all_ranks(c10d::Store& store, std::int64_t rank, std::int64_t size,
                        std::chrono::milliseconds timeout);

// Returns the location of each rank, indexed by rank. Call it after wait_for_all_ranks().
std::vector<RankLocation> locations_of_all(c10d::Store& store, std::int64_t size);

}  // namespace hasten
