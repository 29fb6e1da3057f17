// File: hasten/prepare/foreign_loader.h
// Reads a loader that is not hasten's, such as torch::data's or a container. Every process reads
// all of its batches and keeps its own, so all processes must read the same batches. Internal; part
// of hasten/prepare/prepared.h.
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
// Step::require_all throws. Thread rule: that of the Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "hasten/prepare/step.h"

namespace hasten::detail {

class ForeignLoader {
 public:
  // Each pass has its own object. `draws`: the loader may draw random numbers.
  ForeignLoader(Step& step, bool draws);
  ForeignLoader(const ForeignLoader&) = delete;
  ForeignLoader& operator=(const ForeignLoader&) = delete;
  ~ForeignLoader();

  // Calls the loader's begin(), in every process with the state of rank 0's generator.
  template <class Call>
  auto begin(Call&& call) {
    const Scope scope(*this, &ForeignLoader::enter_begin, &ForeignLoader::leave_begin);
    return call();
  }
  // Calls anything else that may read from the loader, with the generator of the pass.
  template <class Call>
  auto read(Call&& call) {
    const Scope scope(*this, &ForeignLoader::enter_read, &ForeignLoader::leave_read);
    return call();
  }
  // True if the batches of the current step have to be compared.
  bool compares() const;
  // Compares the tensors of the batches that this process has just read with those of the other
  // processes. A collective.
  void compare(const std::vector<at::Tensor>& tensors);

 private:
  using Action = void (ForeignLoader::*)();
  class Scope {
   public:
    Scope(ForeignLoader& loader, Action enter, Action leave) : loader_(loader), leave_(leave) {
      (loader.*enter)();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { (loader_.*leave_)(); }

   private:
    ForeignLoader& loader_;
    Action leave_;
  };
  struct Generators;

  void enter_begin();
  void leave_begin();
  void enter_read();
  void leave_read();

  Step& step_;
  std::unique_ptr<Generators> generators_;  // null if the loader draws no numbers
  bool compared_ = false;
};

}  // namespace hasten::detail
