// Saves and restores the open accumulation window of a run of the Trainer, with the scale of its
// losses.
#include <cstring>
#include <utility>

#include "checkpoint/gradient_state.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/once.h"
#include "trainer/trainer_impl.h"

namespace hasten {

std::vector<WindowPosition> Trainer::Impl::gather_windows(const StepTotals& totals,
                                                          double loss) const {
  WindowPosition position{
      .loss = loss, .items = totals.items, .tokens = totals.tokens, .flos = totals.flos};
  const OpenWindows open = accelerator.open_windows();
  if (!open.empty()) {  // the Trainer has one model, so a process has one window
    const OpenWindow& window = open.windows.front();
    position.micro_batches = window.micro_batches;
    position.backward_passes = window.backward_passes;
    position.rows = window.rows;
    position.weight = window.weight;
  }
  const std::string bytes(reinterpret_cast<const char*>(&position), sizeof position);
  std::vector<WindowPosition> all;
  for (const std::string& of_rank : group().gather_object(bytes))
    std::memcpy(&all.emplace_back(), of_rank.data(), sizeof position);
  return all;
}

void Trainer::Impl::save_gradients(const std::filesystem::path& folder) const {
  save_safetensors(folder / gradients_file(group().rank()), accelerator.open_windows().gradients);
}

void Trainer::Impl::restore_window(const std::vector<WindowPosition>& windows,
                                   const std::optional<LossScalePosition>& scale,
                                   const std::filesystem::path& folder) {
  once(group(), true, [&] {
    const WindowPosition& own = windows.at(static_cast<std::size_t>(group().rank()));
    OpenWindows saved{.loss_scale = scale ? scale->scale : 1};
    const std::filesystem::path file = folder / gradients_file(group().rank());
    if (own.micro_batches > 0) {
      saved.windows.push_back({.models = {0},
                               .micro_batches = own.micro_batches,
                               .capacity = args.gradient_accumulation_steps,
                               .backward_passes = own.backward_passes,
                               .rows = own.rows,
                               .weight = own.weight});
      saved.gradients = load_safetensors(file);
    }
    accelerator.restore_windows(saved, file);
  });
}

std::optional<LossScalePosition> Trainer::Impl::loss_scale_position() const {
  std::optional<LossScalePosition> position = accelerator.loss_scale();
  if (position) position->skipped_since_log = position->skipped_steps - logged_skipped_steps;
  return position;
}

void Trainer::Impl::restore_loss_scale(const std::optional<LossScalePosition>& saved) {
  accelerator.restore_loss_scale(saved);
  logged_skipped_steps = saved ? saved->skipped_steps - saved->skipped_since_log : 0;
}

std::int64_t Trainer::Impl::take_skipped_steps() {
  const std::optional<LossScalePosition> position = accelerator.loss_scale();
  const std::int64_t skipped = position ? position->skipped_steps : 0;
  return skipped - std::exchange(logged_skipped_steps, skipped);
}

}  // namespace hasten
