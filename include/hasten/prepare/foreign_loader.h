// File: hasten/prepare/foreign_loader.h
// Reading a loader that is not hasten's. Every process reads all of its batches and keeps its own,
// so all processes have to read the same batches. Internal; part of hasten/prepare/prepared.h.
//
// A sampler draws the order of its rows from the process's default generator: LibTorch's
// RandomSampler does so in begin(), others with each batch, and so do datasets that change their
// rows at random. The generators of the processes differ as soon as one draws what another does
// not. Therefore
//   - begin() runs with rank 0's generator in every process. Rank 0's own generator goes on from
//     there, as in a single process; the others continue as if nothing had been drawn.
//   - what is drawn later in a pass comes from a generator of the pass, which follows from rank 0's
//     state after begin(). It is used in a single process too, so that one process and several
//     read the same rows. Such a pass draws one number from the default generator of rank 0, so
//     that the next pass has another generator.
//   - what cannot be made alike, a sampler with an engine of its own or workers that draw, is
//     noticed: the first batches of each pass are compared, or all of them with
//     AcceleratorOptions::debug.
// The start of a pass is therefore a collective. Containers (anything whose const begin() gives
// forward iterators) draw nothing, so theirs are compared only.
//
// Throws UsageError "prepare.batches-differ" in every process; inside of join_uneven_inputs what
// Step::require_all throws. Thread rule: the Accelerator's.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "hasten/prepare/step.h"

namespace hasten::detail {

class ForeignLoader {
 public:
  // One for each pass. `draws`: the loader may draw random numbers.
  ForeignLoader(Step& step, bool draws);
  ForeignLoader(const ForeignLoader&) = delete;
  ForeignLoader& operator=(const ForeignLoader&) = delete;
  ~ForeignLoader();

  // The loader's begin(), in every process with rank 0's generator.
  template <class Call>
  auto begin(Call&& call) {
    const Scope scope(*this, &ForeignLoader::enter_begin, &ForeignLoader::leave_begin);
    return call();
  }
  // Anything else that may read from it, with the generator of the pass.
  template <class Call>
  auto read(Call&& call) {
    const Scope scope(*this, &ForeignLoader::enter_read, &ForeignLoader::leave_read);
    return call();
  }
  // Whether the batches of the step at hand are to be compared.
  bool compares() const;
  // These are the tensors of the batches that this process has just read. A collective.
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
  std::unique_ptr<Generators> generators_;  // none where nothing is drawn
  bool compared_ = false;
};

}  // namespace hasten::detail
