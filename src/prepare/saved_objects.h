// File: prepare/saved_objects.h (internal)
// The objects that the checkpoints of one Accelerator contain: all prepared objects, in the order
// of preparation, and the registered objects and functions. References to prepared objects are
// weak: an object that no longer exists is not saved.
//
//   SavedObjects saved;
//   saved.add_model(module);
//   for (const auto& model : saved.models()) save_weights(*model, folder);
//
// Thread rule: that of the Accelerator.
#pragma once

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/folder_lock.h"
#include "checkpoint/best_checkpoint.h"
#include "hasten/prepare/detail/loader_position.h"
#include "hasten/prepare/detail/save_state.h"
#include "prepare/synced_state.h"
#include "track/tracker_set.h"

namespace hasten {

class SavedObjects {
 public:
  void add_model(const std::shared_ptr<torch::nn::Module>& module) {
    if (!find_model(module.get())) add(models_, module);
  }
  void remove_model(const torch::nn::Module* module) {
    std::erase_if(models_, [&](const auto& each) { return each.lock().get() == module; });
  }
  // Replaces the entry of an optimizer without handles that a scheduler keeps alive.
  void add_optimizer(const std::shared_ptr<SyncedOptimizer>& optimizer) {
    std::erase_if(optimizers_, [&](const auto& each) {
      const auto known = each.lock();
      return known && known->shared().get() == optimizer->shared().get();
    });
    add(optimizers_, optimizer);
  }
  void add_scheduler(const std::shared_ptr<SyncedScheduler>& scheduler) {
    add(schedulers_, scheduler);
  }
  void add_loader(const std::shared_ptr<detail::LoaderPosition>& loader) { add(loaders_, loader); }

  std::vector<std::shared_ptr<torch::nn::Module>> models() { return live_objects(models_); }
  std::vector<std::shared_ptr<SyncedOptimizer>> optimizers() { return live_objects(optimizers_); }
  std::vector<std::shared_ptr<SyncedScheduler>> schedulers() { return live_objects(schedulers_); }
  std::vector<std::shared_ptr<detail::LoaderPosition>> loaders() { return live_objects(loaders_); }

  // Returns the entry of an object that is prepared, or null if there is none.
  std::shared_ptr<torch::nn::Module> find_model(const torch::nn::Module* module) {
    return find(models(), [&](const auto& each) { return each.get() == module; });
  }
  std::shared_ptr<SyncedOptimizer> find_optimizer(const torch::optim::Optimizer* optimizer) {
    return find(optimizers(), [&](const auto& each) { return each->shared().get() == optimizer; });
  }
  std::shared_ptr<SyncedScheduler> find_scheduler(const torch::optim::LRScheduler* scheduler) {
    return find(schedulers(), [&](const auto& each) { return each->shared().get() == scheduler; });
  }
  std::shared_ptr<detail::LoaderPosition> find_loader(const void* loader) {
    return find(loaders(), [&](const auto& each) { return each->loader() == loader; });
  }

  // The registered objects and functions, in the order of registration.
  std::vector<std::shared_ptr<SavedObject>> objects;
  std::vector<std::shared_ptr<CheckpointFunction>> before_save, before_load;
  // The trackers, whose positions belong to the checkpoints.
  std::shared_ptr<TrackerSet> trackers;
  // The number of the newest checkpoint with an automatic name that this run has saved or loaded,
  // or -1 if there is none.
  std::int64_t iteration = -1;
  // The best of these checkpoints, and the one that was the best before it: a save may fail after
  // it has begun.
  std::optional<BestCheckpoint> best, best_before;
  // True after a call has found that the project's folder has no checkpoints of another run.
  bool owns_project = false;
  // The lock on that folder from the first save on, in a process that writes. Null without one.
  std::shared_ptr<FolderLock> project_lock;

 private:
  // Returns the objects that still exist, and forgets the others.
  template <class Object>
  static std::vector<std::shared_ptr<Object>> live_objects(
      std::vector<std::weak_ptr<Object>>& all) {
    std::vector<std::shared_ptr<Object>> found;
    std::erase_if(all, [&](const auto& each) {
      if (auto object = each.lock()) found.push_back(std::move(object));
      return each.expired();
    });
    return found;
  }
  template <class Object, class Predicate>
  static std::shared_ptr<Object> find(const std::vector<std::shared_ptr<Object>>& all,
                                      const Predicate& is_wanted) {
    const auto found = std::find_if(all.begin(), all.end(), is_wanted);
    return found == all.end() ? nullptr : *found;
  }
  template <class Object>
  static void add(std::vector<std::weak_ptr<Object>>& all, const std::shared_ptr<Object>& object) {
    live_objects(all);
    all.push_back(object);
  }

  std::vector<std::weak_ptr<torch::nn::Module>> models_;
  std::vector<std::weak_ptr<SyncedOptimizer>> optimizers_;
  std::vector<std::weak_ptr<SyncedScheduler>> schedulers_;
  std::vector<std::weak_ptr<detail::LoaderPosition>> loaders_;
};

}  // namespace hasten
