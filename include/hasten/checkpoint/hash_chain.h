// File: hasten/checkpoint/hash_chain.h
// The hash chain of a run. Every k steps it gets a line with the hashes of everything that
// determines how the run continues. Two runs with equal lines are bit-identical up to that step
// (docs/durability.md).
//
//   const HashChain a = read_hash_chain("out/hash_chain.jsonl");   // throws if a line was changed
//   if (const auto difference = compare_runs("out", "again").difference)
//     std::cout << "step " << difference->step << ": " << difference->part << '\n';
//
// A link has the SHA-256 of the rows since the previous link, the loss, the SHA-256 of every weight
// and of every tensor of the optimizer's state, and the hash of the previous link; its own hash is
// the SHA-256 of all of this (docs/formats.md). So a changed line is detected, and the last line
// identifies the whole run. The Trainer writes the file if TrainingArguments::hash_chain_steps is
// set.
//
// Throws DataError "checkpoint.*", IoError "io.*". Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// SHA-256 by name, 64 hexadecimal digits each.
using TensorHashes = std::map<std::string, std::string>;

struct HashLink {
  std::int64_t step = 0;
  std::int64_t num_processes = 1;
  std::string previous;  // the hash of the previous link; first_hash() for the first link
  std::string rows;  // the hash of the rows that all processes have used since the previous link
  double loss = 0;   // the loss of the step
  TensorHashes weights, optimizer;
};

using HashChain = std::vector<HashLink>;

// Returns the previous hash of the first link: 64 zeros.
HASTEN_API std::string first_hash();
// The hash of a link.
HASTEN_API std::string hash_of(const HashLink& link);
// The line of a link in the file, with its hash, without a line end.
HASTEN_API std::string line_of(const HashLink& link);

// Reads a chain and checks the hash of every line and that each line names the hash of the previous
// one. A last line without a line end is ignored, because the process was killed while it wrote the
// line.
HASTEN_API HashChain read_hash_chain(const std::filesystem::path& file);

// Hashes type, shape and values of each tensor, on several threads.
HASTEN_API TensorHashes tensor_hashes(const TensorDict& tensors);

// The first step at which two runs differ, and the part of the state that differs there.
struct RunDifference {
  std::int64_t step = 0;
  std::string part;             // such as "the loss" or "tensor "fc.weight" of the optimizer"
  std::size_t other_parts = 0;  // the number of other parts that differ at this step
};

struct RunComparison {
  std::size_t links = 0, checkpoints = 0;  // the numbers that were compared and are equal
  std::int64_t last_step = 0;              // the last of these steps
  std::optional<RunDifference> difference;
};

// Compares the chains and the checkpoints of two runs at the steps that both have, from step `from`
// on, and returns the first difference. Throws DataError "checkpoint.nothing-in-common" if there is
// no such step.
HASTEN_API RunComparison compare_runs(const std::filesystem::path& a,
                                      const std::filesystem::path& b, std::int64_t from = 0);

}  // namespace hasten
