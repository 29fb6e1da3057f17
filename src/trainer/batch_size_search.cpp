#include "trainer/batch_size_search.h"

#include "checkpoint/random_state.h"
#include "formats/module_tensors.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/device/memory.h"
#include "hasten/process/once.h"
#include "trainer/resume.h"

namespace hasten {

std::optional<BatchSize> smaller_batch(const BatchSize& size) {
  const std::int64_t rows_per_step = size.rows * size.accumulation;
  std::int64_t rows = size.rows / 2;
  while (rows > 1 && rows_per_step % rows != 0) --rows;
  if (rows < 1) return std::nullopt;
  return BatchSize{.rows = rows, .accumulation = rows_per_step / rows, .floor = size.floor};
}

Trainer::BatchSizeSearch::BatchSizeSearch(Impl& trainer)
    : trainer_(trainer), random_(random_state()), weights_(tensors_of(*trainer.model).tensors) {
  for (auto& [name, tensor] : weights_) tensor = tensor.detach().to(at::kCPU, false, true);
  // The program's objects may throw, in one process only.
  once(trainer.group(), true, [&] { objects_ = trainer.accelerator.registered_states(); });
  for (auto& [file, tensors] : objects_) {
    for (auto& [name, tensor] : tensors) tensor = tensor.detach().clone();
  }
}

std::optional<std::filesystem::path> Trainer::BatchSizeSearch::restart_point(
    const std::filesystem::path& newest, const std::filesystem::path& resumed) const {
  if (!newest.empty() && all_allow_smaller_batches(newest)) return newest;
  if (resumed.empty()) return std::filesystem::path();
  if (all_allow_smaller_batches(resumed)) return resumed;
  return std::nullopt;
}

bool Trainer::BatchSizeSearch::all_allow_smaller_batches(
    const std::filesystem::path& checkpoint) const {
  return !Impl::Resume::is_true_for_a_writer(
      trainer_, [&] { return !allows_smaller_batches(checkpoint, trainer_.args); });
}

bool Trainer::BatchSizeSearch::halve() {
  TrainingArguments& args = trainer_.args;
  const auto smaller = smaller_batch(
      {.rows = args.per_device_train_batch_size, .accumulation = args.gradient_accumulation_steps});
  if (!smaller) return false;
  args.per_device_train_batch_size = smaller->rows;
  args.gradient_accumulation_steps = smaller->accumulation;
  trainer_.accelerator.set_gradient_accumulation_steps(args.gradient_accumulation_steps);
  return true;
}

void Trainer::BatchSizeSearch::restart(const std::filesystem::path& checkpoint) {
  TrainingArguments& args = trainer_.args;
  empty_device_cache();
  trainer_.logger.warning(
      str("a training step ran out of memory: training ",
          checkpoint.empty() ? "starts again" : "continues from " + checkpoint.string(),
          " with batches of ", args.per_device_train_batch_size, " and ",
          args.gradient_accumulation_steps, " of them in a step"));
  if (checkpoint.empty()) {
    // The run that failed began without checkpoints in the folder, so these are its own.
    once(trainer_.group(), trainer_.writes(), [&] {
      for (const std::filesystem::path& each : checkpoints(args.output_dir)) remove_directory(each);
    });
  } else {
    args.resume_from_checkpoint = checkpoint.string();
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors_of(*trainer_.model).tensors)
    tensor.copy_(weights_.at(name));
  once(trainer_.group(), true, [&] { trainer_.accelerator.restore_registered_states(objects_); });
  restore_random_state(random_);
}

}  // namespace hasten
