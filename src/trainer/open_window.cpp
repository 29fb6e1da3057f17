// The accumulation window in which a run of the Trainer is saved and continued, with the scale of its
// losses.
#include <cstring>
#include <nlohmann/json.hpp>

#include "hasten/formats/safetensors.h"
#include "hasten/process/once.h"
#include "prepare/window_state.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

// The Trainer has one model, so a process has one window.
Json json_of(const WindowPosition& window) {
  if (window.micro_batches == 0) return Json::array();
  return Json::array({{{"models", Json::array({0})},
                       {"micro_batches", window.micro_batches},
                       {"backward_passes", window.backward_passes},
                       {"weight", window.weight}}});
}

}  // namespace

std::vector<WindowPosition> Trainer::Impl::windows_of_all(const StepTotals& totals,
                                                          double loss) const {
  const WindowState own = window_state_of(*accelerator.state_);
  WindowPosition window{
      .loss = loss, .items = totals.items, .tokens = totals.tokens, .flos = totals.flos};
  if (own.is_open()) {
    const Json& counts = own.windows.front();
    window.micro_batches = counts.at("micro_batches").get<std::int64_t>();
    window.backward_passes = counts.at("backward_passes").get<std::int64_t>();
    window.weight = counts.at("weight").get<double>();
  }
  const std::string bytes(reinterpret_cast<const char*>(&window), sizeof window);
  std::vector<WindowPosition> all;
  for (const std::string& of_rank : group().gather_object(bytes))
    std::memcpy(&all.emplace_back(), of_rank.data(), sizeof window);
  return all;
}

void Trainer::Impl::save_gradients(const std::filesystem::path& folder) const {
  save_safetensors(folder / gradients_file(group().rank()),
                   window_state_of(*accelerator.state_).gradients);
}

std::optional<ElasticPosition> Trainer::Impl::elastic_position() const {
  ElasticRanks* const elastic = accelerator.state_->elastic.get();
  return elastic ? std::optional(elastic->position()) : std::nullopt;
}

void Trainer::Impl::restore_elastic(const std::optional<ElasticPosition>& saved,
                                    const std::filesystem::path& checkpoint) const {
  ElasticRanks* const elastic = accelerator.state_->elastic.get();
  ElasticRanks::check_same_run(saved, elastic, checkpoint.string());
  if (elastic) elastic->restore(*saved);
}

LossScaling* Trainer::Impl::loss_scaling() const { return accelerator.state_->scaling.get(); }

std::optional<LossScalePosition> Trainer::Impl::loss_scale_position() const {
  const LossScaling* const scaling = loss_scaling();
  return scaling ? std::optional(scaling->position()) : std::nullopt;
}

void Trainer::Impl::restore_loss_scale(const std::optional<LossScalePosition>& saved) const {
  LossScaling* const scaling = loss_scaling();
  if (scaling == nullptr) return;
  if (!saved) return scaling->reset();
  scaling->restore(*saved);
}

void Trainer::Impl::restore_window(const std::vector<WindowPosition>& windows,
                                   const std::optional<LossScalePosition>& scale,
                                   const std::filesystem::path& folder) {
  Json of_ranks = Json::array();
  for (const WindowPosition& window : windows) of_ranks.push_back(json_of(window));
  AcceleratorState& own = *accelerator.state_;
  once(group(), true,
       [&] { restore_window_state(own, read_window_state(own, of_ranks, folder), scale); });
}

}  // namespace hasten
