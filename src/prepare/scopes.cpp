#include "hasten/prepare/detail/scopes.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "device/device.h"
#include "prepare/accelerator_state.h"

namespace hasten {

AccumulateScope::AccumulateScope(std::shared_ptr<AcceleratorState> state,
                                 const std::vector<std::shared_ptr<torch::nn::Module>>& models,
                                 std::optional<bool> ends_window)
    : state_(std::move(state)) {
  state_->begin_micro_batch(models, ends_window);
}

AccumulateScope::~AccumulateScope() { state_->end_micro_batch(); }

ProfileScope::ProfileScope(std::filesystem::path trace) : trace_(std::move(trace)) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO,
                                        /*report_input_shapes=*/true, /*profile_memory=*/true);
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  const std::vector<const Device*>& devices = all_devices();
  if (std::any_of(devices.begin(), devices.end(),
                  [](const Device* each) { return each->is_profiled(); }))
    activities.insert(profiler::ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

ProfileScope::~ProfileScope() {
  torch::autograd::profiler::disableProfiler()->save(trace_.string());
}

SynchronizationScope::SynchronizationScope(std::shared_ptr<AcceleratorState> state,
                                           const torch::nn::Module* model,
                                           Synchronization synchronization)
    : state_(std::move(state)),
      model_(model),
      before_(state_->gradients.set_synchronization(model, synchronization)) {}

SynchronizationScope::~SynchronizationScope() {
  state_->gradients.set_synchronization(model_, before_);
}

}  // namespace hasten
