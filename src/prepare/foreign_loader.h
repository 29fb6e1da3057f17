// File: prepare/foreign_loader.h (internal)
// Reads a loader that hasten did not make, such as a torch::data loader or a container. Every
// process reads all batches and keeps its own, so all processes must read the same batches.
//
//   ForeignLoader foreign(state, /*draws=*/true);
//   foreign.enter_begin();
//   auto it = loader.begin();
//   foreign.leave_begin();
//
// A sampler draws the order of its rows from the process's default generator: LibTorch's
// RandomSampler in begin(), other samplers, and datasets that change their rows at random, with
// each batch. The generators of the processes differ as soon as one process draws a number that
// another does not. Therefore:
// - begin() runs with the state of rank 0's generator in every process. Rank 0's own generator
// continues from there, as in a single process. The generators of the other processes are restored.
// - Numbers that are drawn later in a pass come from a generator for this pass, which is derived
// from rank 0's state after begin(). A single process uses it too, so that it reads the same rows
// as several processes do. Such a pass draws one number from rank 0's default generator, so that
// the next pass gets a different generator.
// - A sampler with its own engine, or workers that draw numbers, cannot be made equal. They are
// detected: the batches of the first step of each pass are compared. With AcceleratorOptions::debug
// the batches of every step are compared.
//
// The start of a pass is therefore a collective. Containers (types whose const begin() returns
// forward iterators) draw no numbers; their batches are only compared, except inside
// join_uneven_inputs.
//
// Throws UsageError "prepare.batches-differ" in every process. Inside join_uneven_inputs it also
// throws the exceptions of ExchangeAnnouncer::require_all_have_data. Thread rule: that of the
// Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace hasten {

class AcceleratorState;

namespace detail {

class ForeignLoader {
 public:
  // Each pass has its own object. `draws` is true if the loader may draw random numbers.
  ForeignLoader(AcceleratorState& state, bool draws);
  ForeignLoader(const ForeignLoader&) = delete;
  ForeignLoader& operator=(const ForeignLoader&) = delete;
  ~ForeignLoader();

  // Call these before and after the loader's begin(), which then runs in every process with the
  // state of rank 0's generator.
  void enter_begin();
  void leave_begin();
  // Call these before and after any other code that may read from the loader. It then runs with the
  // generator of the pass.
  void enter_read();
  void leave_read();
  // True if the batches of the current step must be compared.
  bool compares() const;
  // Compares the tensors of the batches that this process has just read with the tensors of the
  // other processes. A collective.
  void compare(const std::vector<at::Tensor>& tensors);

 private:
  struct Generators;

  AcceleratorState& state_;
  std::unique_ptr<Generators> generators_;  // null if the loader draws no numbers
  bool compared_ = false;
};

}  // namespace detail
}  // namespace hasten
