// File: trainer/run_hashes.h (internal)
// Writes the hash chain of a training run (hasten/checkpoint/hash_chain.h).
//
//   RunHashes hashes(output_dir, /*every=*/100, group, /*virtual_ranks=*/1);
//   hashes.start();                                  // or resume(step, position of the checkpoint)
//   hashes.add_rows(batch, virtual_rank);            // each micro-batch, before it is used
//   if (hashes.is_due(step)) hashes.add_link(step, loss, module, optimizer, parameters);
//   hashes.write();
//
// Every process hashes the rows that it uses, separately for each of its virtual ranks. The main
// process hashes the weights and the state of the optimizer, and writes. Throws IoError "io.*".
// Thread rule: the training thread.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/data/detail/any_batch.h"
#include "hasten/process/group.h"

namespace hasten {

// A resumed run finds this in the file. The fields keep their defaults if the file has the newest
// link before the checkpoint, and in processes that do not write.
struct ResumedChain {
  bool begins_again = false;
  std::string damage = {};  // a sentence about a file that was damaged, and where it is now
};

class RunHashes {
 public:
  // `virtual_ranks` is the number of virtual ranks of each process, or 1.
  RunHashes(const std::filesystem::path& output_dir, std::int64_t every, Group group,
            std::int64_t virtual_ranks);

  // Begins a chain, and deletes the chain of an earlier run.
  void start();
  // Continues the chain at a checkpoint. The other links, such as those of later steps, move to the
  // file `abandoned-hash_chain.jsonl`. If the run has resumed from an earlier checkpoint meanwhile,
  // the links before this one are there, and are copied back. If the newest of them is in neither
  // file, the older ones move too. A damaged file is renamed. In both cases the file begins again,
  // with a link that continues the one that the checkpoint names.
  ResumedChain resume(std::int64_t step, const std::optional<HashChainPosition>& position);
  void add_rows(AnyBatch batch, std::int64_t virtual_rank);
  // True if this step ends with a link.
  bool is_due(std::int64_t step) const { return step % every_ == 0; }
  // Adds a link, which write() writes. `loss` is the loss of the step. A collective.
  void add_link(std::int64_t step, double loss, const torch::nn::Module& module,
                const torch::optim::Optimizer& optimizer, const ParameterNames& parameters);
  // Writes the links that the file does not have. If it throws, they remain for the next call, so
  // that the chain has no gap. A collective.
  void write();
  // Returns the state for a checkpoint. A collective.
  HashChainPosition position() const;

 private:
  bool writes() const { return group_.rank() == 0; }
  // Changes the file so that it ends with the link that the next link follows. That link is of this
  // step or an earlier one. Returns a sentence about a damaged file that it has renamed, or an
  // empty text.
  std::string restore_links(std::int64_t step);
  // Writes the links that the chain does not keep to the abandoned file, which has the links
  // `abandoned`. Returns the lines of the others.
  std::string split_links(const HashChain& own, const HashChain& abandoned,
                          std::int64_t step) const;
  std::filesystem::path abandoned_file() const;

  std::filesystem::path file_;
  std::int64_t every_;
  Group group_;
  std::string previous_;
  // For each virtual rank of this process, the hash of its rows since the previous link.
  std::vector<std::string> rows_;
  // In the process that writes: the bytes of the file that are whole lines, and the lines that
  // follow.
  std::int64_t written_ = 0;
  std::string unwritten_;
};

}  // namespace hasten
