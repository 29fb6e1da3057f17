// File: hasten/prepare/detail/save_state.h
// The options of Accelerator::save_state and load_state, and the objects that they save in addition
// to what was prepared. An object to register has state_dict() and load_state_dict():
//
//   struct Counter {
//     hasten::TensorDict state_dict() const { return {{"seen", at::scalar_tensor(seen)}}; }
//     void load_state_dict(const hasten::TensorDict& state) { seen = state.at("seen").item<double>(); }
//     double seen = 0;
//   };
//   hasten::Accelerator accelerator({.project_config = {.project_dir = "out",
//                                                       .automatic_checkpoint_naming = true,
//                                                       .total_limit = 3}});
//   Counter counter;
//   accelerator.register_for_checkpointing(counter);
//   accelerator.load_state();                        // false in the first run: nothing was saved yet
//   accelerator.save_state();                        // out/checkpoints/checkpoint_0
//
// or it has state(), which returns a std::map<std::string, double>, and set_state(), which takes
// one, as hasten::MetricScheduler does. It must outlive the Accelerator. Thread rule: the same as
// for the Accelerator.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// Names and meaning match Accelerate, except that `iteration` follows from the checkpoints.
struct ProjectConfiguration {
  // The folder of the project. Its checkpoints are in the subfolder `checkpoints`.
  std::filesystem::path project_dir = {};
  // save_state() and load_state() choose the folder themselves: `checkpoint_0`, `checkpoint_1` and
  // so on.
  bool automatic_checkpoint_naming = false;
  // The largest number of checkpoints to keep; all if unset. The oldest are deleted after a new one
  // is saved.
  std::optional<std::int64_t> total_limit = std::nullopt;
  // The checkpoints whose number is a multiple of this one are never deleted, and do not count
  // towards total_limit. 0 means none. Accelerate has no such option.
  std::int64_t keep_every = 0;
  // The first process of each machine writes a whole checkpoint to its own disk, for machines
  // without a shared folder. Otherwise only the main process of the job writes.
  bool save_on_each_node = false;
  // True if larger values of SaveStateOptions::metric are better. Accelerate has no such option.
  bool greater_is_better = false;
};

struct SaveStateOptions {
  // Copies the state and returns; a thread writes the copy while training continues. Until it is
  // written, the copy takes as much memory as the checkpoint has bytes.
  bool asynchronous = false;
  // A measure of the state, such as its validation loss: `accelerator.save_state({}, {.metric =
  // loss})`. Of the checkpoints with automatic names, the one with the best metric so far is never
  // deleted. A metric that is not finite is never the best. That of the process that writes counts.
  std::optional<double> metric = std::nullopt;
};

// An object whose state belongs to the checkpoints.
class HASTEN_API SavedObject {
 public:
  virtual ~SavedObject() = default;
  virtual TensorDict state_dict() const = 0;
  virtual void load_state_dict(const TensorDict& state) = 0;
};

// A function that save_state() or load_state() calls with the folder, in every process. A
// CheckpointHook removes it again.
using CheckpointFunction = std::function<void(const std::filesystem::path& folder)>;

class CheckpointHook {
 public:
  explicit CheckpointHook(const std::shared_ptr<CheckpointFunction>& function)
      : function_(function) {}
  // Unregisters the function.
  void remove() {
    if (const auto function = function_.lock()) *function = nullptr;
  }

 private:
  std::weak_ptr<CheckpointFunction> function_;
};

namespace detail {

using NumbersByName = std::map<std::string, double>;
HASTEN_API TensorDict tensors_from_numbers(const NumbersByName& numbers);
HASTEN_API NumbersByName numbers_from_tensors(const TensorDict& tensors);

template <class Object>
concept HasStateDict = requires(Object& object, const TensorDict& state) {
  { std::as_const(object).state_dict() } -> std::convertible_to<TensorDict>;
  object.load_state_dict(state);
};
template <class Object>
concept HasNumbers = requires(Object& object, const NumbersByName& state) {
  { std::as_const(object).state() } -> std::convertible_to<NumbersByName>;
  object.set_state(state);
};

template <class Object>
class SavedReference : public SavedObject {
 public:
  explicit SavedReference(Object& object) : object_(object) {}
  TensorDict state_dict() const override {
    if constexpr (HasStateDict<Object>) {
      return std::as_const(object_).state_dict();
    } else {
      return tensors_from_numbers(std::as_const(object_).state());
    }
  }
  void load_state_dict(const TensorDict& state) override {
    if constexpr (HasStateDict<Object>) {
      object_.load_state_dict(state);
    } else {
      object_.set_state(numbers_from_tensors(state));
    }
  }

 private:
  Object& object_;
};

}  // namespace detail
}  // namespace hasten
