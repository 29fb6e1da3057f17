#include "trainer/batch_size_search.h"

#include "checkpoint/random_state.h"
#include "formats/module_tensors.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"

namespace hasten {

Trainer::BatchSizeSearch::BatchSizeSearch(Impl& trainer)
    : trainer_(trainer), random_(random_state()), weights_(tensors_of(*trainer.model).tensors) {
  for (auto& [name, tensor] : weights_) tensor = tensor.detach().to(at::kCPU, false, true);
}

bool Trainer::BatchSizeSearch::halve() {
  TrainingArguments& args = trainer_.args;
  const std::int64_t rows = args.per_device_train_batch_size * args.gradient_accumulation_steps;
  std::int64_t smaller = args.per_device_train_batch_size / 2;
  while (smaller > 1 && rows % smaller != 0) --smaller;
  if (smaller < 1) return false;
  args.per_device_train_batch_size = smaller;
  args.gradient_accumulation_steps = rows / smaller;
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
  if (!checkpoint.empty()) {
    args.resume_from_checkpoint = checkpoint.string();
    return;
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors_of(*trainer_.model).tensors)
    tensor.copy_(weights_.at(name));
  restore_random_state(random_);
}

}  // namespace hasten
