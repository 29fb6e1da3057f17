// File: hasten/prepare/detail/loader_position.h
// The position of a prepared loader, which a checkpoint keeps. Part of
// hasten/prepare/detail/prepared_loader.h.
//
// hasten's loaders report their position. Any other loader is read again from the start of the pass
// to the next batch, with the random numbers that the pass started with.
// Thread rule: the same as for the Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/loader_options.h"

namespace hasten::detail {

// The position in a loader that is not hasten's.
struct PassPosition {
  // Steps of the current pass that the loop has begun; 0 between two passes.
  std::int64_t batches = 0;
  // The state of LibTorch's CPU generator before the pass began; undefined if the pass draws no
  // numbers.
  at::Tensor generator;
};

// The position in a loader of either kind.
struct SavedPosition {
  bool is_hasten_loader = false;
  LoaderState loader;
  PassPosition pass;
};

class HASTEN_API LoaderPosition {
 public:
  virtual ~LoaderPosition() = default;
  virtual SavedPosition position() const = 0;
  // Throws DataError "data.state" for a position past the end.
  virtual void set_position(const SavedPosition& position) = 0;
  virtual bool is_hasten_loader() const = 0;
  // Returns the loader if it is hasten's, otherwise null.
  virtual const void* loader() const = 0;
};

template <class Loader>
class HastenLoaderPosition : public LoaderPosition {
 public:
  explicit HastenLoaderPosition(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  SavedPosition position() const override {
    return {.is_hasten_loader = true, .loader = loader_->state(), .pass = {}};
  }
  void set_position(const SavedPosition& position) override {
    loader_->load_state(position.loader);
  }
  bool is_hasten_loader() const override { return true; }
  const void* loader() const override { return loader_.get(); }

 private:
  std::shared_ptr<Loader> loader_;
};

class HASTEN_API ForeignLoaderPosition : public LoaderPosition {
 public:
  SavedPosition position() const override {
    return {.is_hasten_loader = false, .loader = {}, .pass = resumes ? resumed : current};
  }
  void set_position(const SavedPosition& position) override {
    resumes = position.pass.batches > 0;
    resumed = position.pass;
    current = {};
  }
  bool is_hasten_loader() const override { return false; }
  const void* loader() const override { return nullptr; }

  PassPosition current;
  // The pass that `current` belongs to.
  const void* pass = nullptr;
  // True if the next pass starts at `resumed`.
  bool resumes = false;
  PassPosition resumed;
};

}  // namespace hasten::detail
