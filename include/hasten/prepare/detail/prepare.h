// File: hasten/prepare/detail/prepare.h
// Chooses the handle for an object (hasten/prepare/detail/prepared.h): the part of
// Accelerator::prepare that depends on types.
//
//   auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
//
// Objects are modules (TORCH_MODULE holders, std::shared_ptr or std::unique_ptr of a module,
// modules on the stack), torch::optim optimizers, LRSchedulers, and anything with begin() and
// end(); the last three may also be given by shared or unique pointer. The handle only refers to an
// lvalue, which must outlive it. It keeps an rvalue, and the object of a shared_ptr, alive. If an
// optimizer lists a parameter twice, as LibTorch's parameters() does with a shared tensor, one
// entry remains.
//
// An object may be prepared again. While a handle of a module, an optimizer, a scheduler or a
// loader of hasten exists, the Accelerator returns a further handle that equals a copy of that one;
// it keeps the object alive only if the first handle does. Handles of any other loader have
// separate positions, so that one loop over a container may contain another. If all handles of an
// object are gone or empty, it is prepared like a new one, except that a loader of hasten cannot be
// divided among the processes again (ConfigError "data.sharding").
//
// Two kinds of objects are not prepared; use them as they are. The step() of
// torch::optim::ReduceLROnPlateauScheduler takes a metric: pass one that is equal in all processes,
// for example accelerator.reduce(metric, Reduction::mean), or their learning rates diverge.
// torch::jit::Module is not a torch::nn::Module: wrap it in one that registers its parameters and
// calls its forward(). Throws UsageError "prepare.*", "data.loaders-differ". Thread rule: that of
// the Accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/loader_sharding.h"
#include "hasten/prepare/detail/prepared.h"

namespace hasten::detail {

template <class T>
struct PointeeOf {
  using type = void;
};
template <class T>
struct PointeeOf<std::shared_ptr<T>> {
  using type = T;
};
template <class T, class D>
struct PointeeOf<std::unique_ptr<T, D>> {
  using type = T;
};

// The module holders that TORCH_MODULE declares.
template <class T>
concept Holder = requires(const T& holder) {
  typename T::ContainedType;
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

// Returns a shared_ptr to the object, which keeps an rvalue and the object of a shared_ptr alive,
// and only refers to another lvalue.
template <class Object>
auto to_shared_ptr(Object&& object) {
  using T = std::remove_cvref_t<Object>;
  if constexpr (Holder<T>) {
    return std::shared_ptr<typename T::ContainedType>(object.ptr());
  } else if constexpr (!std::is_void_v<typename PointeeOf<T>::type>) {
    using Pointee = typename PointeeOf<T>::type;
    if constexpr (std::is_same_v<T, std::shared_ptr<Pointee>>) {
      return std::shared_ptr<Pointee>(std::forward<Object>(object));
    } else if constexpr (std::is_lvalue_reference_v<Object>) {
      return std::shared_ptr<Pointee>(object.get(), [](Pointee*) {});
    } else {
      return std::shared_ptr<Pointee>(std::forward<Object>(object));
    }
  } else if constexpr (std::is_lvalue_reference_v<Object>) {
    return std::shared_ptr<T>(&object, [](T*) {});
  } else {
    return std::make_shared<T>(std::forward<Object>(object));
  }
}

template <class T>
concept Iterable = requires(T& loader) {
  loader.begin();
  loader.end();
};

template <class T>
concept Shardable = requires(T& loader, LoaderSharding sharding) {
  loader.set_sharding(sharding);
};

template <class T>
inline constexpr bool kAlwaysFalse = false;

// Moves the module to the device.
HASTEN_API void place_module(const AcceleratorState& state, torch::nn::Module& module);
// Moves the module if the Accelerator moves what it prepares, and registers it with the
// Accelerator, which from then on manages its gradients. Returns the pointer that all handles of
// the module share: the given one, or that of an earlier handle that still exists.
HASTEN_API std::shared_ptr<torch::nn::Module> prepare_module(
    AcceleratorState& state, const std::shared_ptr<torch::nn::Module>& module);
// Checks the optimizer, drops its duplicate parameters and moves its state to the device.
HASTEN_API void prepare_optimizer(AcceleratorState& state, torch::optim::Optimizer& optimizer);
// Returns how a loader divides its rows among the processes.
HASTEN_API LoaderSharding loader_sharding(const AcceleratorState& state);
// Checks that the loader has the same number of batches in all processes. `batches` is unset if the
// number is not known. Throws UsageError "data.loaders-differ". A collective.
HASTEN_API void check_same_batches(std::optional<std::int64_t> batches, const Group& group);

// Makes a loader of hasten's return this process's rows only, unless a handle of it exists. Any
// other loader is read in full by every process, so only the number of its batches is checked.
template <class Loader>
void shard_rows(Loader& loader, AcceleratorState& state) {
  if (known_position(state, &loader)) return;
  const LoaderSharding sharding = loader_sharding(state);
  if constexpr (Shardable<Loader>) {
    loader.set_sharding(sharding);
  } else if (sharding.group.size() > 1) {
    std::optional<std::int64_t> batches;
    if constexpr (requires { loader.size(); }) batches = static_cast<std::int64_t>(loader.size());
    check_same_batches(batches, sharding.group);
  }
}

template <class Object>
auto prepare_one(Object&& object, const std::shared_ptr<AcceleratorState>& state) {
  using T = std::remove_cvref_t<Object>;
  if constexpr (requires { typename T::IsPrepared; }) {
    (void)object.unwrap();  // throws if the handle is empty
    return T(std::forward<Object>(object));
  } else if constexpr (std::is_class_v<T>) {
    auto pointer = to_shared_ptr(std::forward<Object>(object));
    using Pointee = typename decltype(pointer)::element_type;
    if constexpr (std::is_base_of_v<torch::nn::Module, Pointee>) {
      const std::shared_ptr<torch::nn::Module> shared = prepare_module(*state, pointer);
      return PreparedModel<Pointee>(std::shared_ptr<Pointee>(shared, pointer.get()), state);
    } else if constexpr (std::is_base_of_v<torch::optim::Optimizer, Pointee>) {
      prepare_optimizer(*state, *pointer);
      return PreparedOptimizer(std::move(pointer), state);
    } else if constexpr (std::is_base_of_v<torch::optim::LRScheduler, Pointee>) {
      return PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler>(std::move(pointer)),
                               state);
    } else if constexpr (Iterable<Pointee>) {
      shard_rows(*pointer, *state);
      return PreparedLoader<Pointee>(std::move(pointer), state);
    } else {
      static_assert(kAlwaysFalse<T>,
                    "Accelerator::prepare takes modules, optimizers, learning-rate schedulers and "
                    "loaders. hasten/prepare/detail/prepare.h explains how to use a "
                    "ReduceLROnPlateauScheduler and a torch::jit::Module");
    }
  } else {
    static_assert(
        kAlwaysFalse<T>,
        "Accelerator::prepare takes modules, optimizers, learning-rate schedulers and loaders");
  }
}

}  // namespace hasten::detail
