#include "trainer/step_memory.h"

#include <exception>
#include <utility>

#include "device/memory_failure.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

Trainer::Impl::StepMemory::StepMemory(Impl& trainer)
    : trainer_(trainer), agrees_(trainer.args.auto_find_batch_size && trainer.group().size() > 1) {
  if (!agrees_) return;
  before_exchange_ = trainer_.accelerator.register_exchange_pre_hook([this] {
    agree();
    has_agreed_ = true;
  });
}

Trainer::Impl::StepMemory::~StepMemory() {
  if (before_exchange_) before_exchange_->remove();
}

void Trainer::Impl::StepMemory::run(const std::string& name, const std::function<void()>& part) {
  name_ = name;
  has_agreed_ = false;
  mark_.emplace(retry_.parameters);
  // The tensors of the failed part are freed before the explanation needs memory.
  std::string text;
  anatomy::RequestedBytes requested;
  try {
    part();
  } catch (const MemoryError&) {  // agree() has reported it
    throw;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    text = short_message(error);
    requested = anatomy::requested_bytes(error);
  }
  if (!text.empty()) report(name, text, requested);
  if (!agrees_ || std::exchange(has_agreed_, false)) return;
  name_ = name;
  agree();
}

std::int64_t Trainer::Impl::StepMemory::rank_without_memory(bool is_own) const {
  const Group& group = trainer_.group();
  const auto own = static_cast<int>(is_own ? group.rank() : -1);
  return group.reduce(at::scalar_tensor(own, at::kInt), Reduction::max).item<int>();
}

// Throws if another process has run out of memory.
void Trainer::Impl::StepMemory::agree() {
  const std::int64_t rank = rank_without_memory(false);
  if (rank < 0) return;
  ran_out_ = true;
  explain_out_of_memory(str("rank ", rank, " ran out of memory"), trainer_.args, name_);
}

void Trainer::Impl::StepMemory::report(const std::string& name, const std::string& text,
                                       const anatomy::RequestedBytes& requested) {
  // If the processes have agreed, the others are in the exchange.
  ran_out_ = !has_agreed_;
  if (agrees_ && ran_out_) (void)rank_without_memory(true);
  // A run that starts again with smaller batches needs no explanation.
  const TrainingArguments& args = trainer_.args;
  const bool starts_again = args.auto_find_batch_size && args.per_device_train_batch_size > 1;
  anatomy::FailureText why;
  if (!starts_again && trainer_.group().size() == 1)
    why = anatomy::explain_failure(retry_, *mark_, requested);
  explain_out_of_memory(text, args, name, why);
}

}  // namespace hasten
