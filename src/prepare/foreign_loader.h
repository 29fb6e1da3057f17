// File: prepare/foreign_loader.h (internal)
// Reads a loader that is not hasten's, such as torch::data's or a container. Every process reads
// all of its batches and keeps its own, so all processes must read the same batches.
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
// - Numbers that are drawn later in a pass come from a generator of that pass, which is derived
// from rank 0's state after begin(). A single process uses it too, so that one process and several
// read the same rows. Such a pass draws one number from rank 0's default generator, so that the
// next pass gets another generator.
// - A sampler with its own engine, or workers that draw numbers, cannot be made equal. They are
// detected: the batches of the first step of each pass are compared, or those of every step with
// AcceleratorOptions::debug.
//
// The start of a pass is therefore a collective. Containers (types whose const begin() returns
// forward iterators) draw no numbers; their batches are only compared, except inside
// join_uneven_inputs.
//
// Throws UsageError "prepare.batches-differ" in every process; inside join_uneven_inputs also what
// GradientSync::require_all throws. Thread rule: that of the Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace hasten {

class AcceleratorState;

namespace detail {

class ForeignLoader {
 public:
  // Each pass has its own object. `draws`: the loader may draw random numbers.
  ForeignLoader(AcceleratorState& state, bool draws);
  ForeignLoader(const ForeignLoader&) = delete;
  ForeignLoader& operator=(const ForeignLoader&) = delete;
  ~ForeignLoader();

  // Must be called before and after the loader's begin(), which then runs in every process with the
  // state of rank 0's generator.
  void enter_begin();
  void leave_begin();
  // Must be called before and after anything else that may read from the loader, which then runs
  // with the generator of the pass.
  void enter_read();
  void leave_read();
  // True if the batches of the current step have to be compared.
  bool compares() const;
  // Compares the tensors of the batches that this process has just read with those of the other
  // processes. A collective.
  void compare(const std::vector<at::Tensor>& tensors);

 private:
  struct Generators;

  AcceleratorState& state_;
  std::unique_ptr<Generators> generators_;  // null if the loader draws no numbers
  bool compared_ = false;
};

}  // namespace detail
}  // namespace hasten
