#include "trainer/evaluation_agreement.h"

#include <torch/torch.h>

#include "base/seconds.h"
#include "hasten/process/once.h"
#include "trainer/agreement.h"

namespace hasten {
namespace {

constexpr double kExchangeInterval = 0.5;  // seconds

}  // namespace

void EvaluationAgreement::attempt(const std::function<void()>& work) {
  if (group_.size() == 1) return work();
  if (failure_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

bool EvaluationAgreement::ends_after_batch(int signal) {
  if (group_.size() == 1) return signal != 0;
  return ++batches_ >= interval_ && exchange(signal);
}

void EvaluationAgreement::finish() {
  if (group_.size() > 1) exchange(0);
}

void EvaluationAgreement::rethrow_in_all() {
  if (group_.size() == 1 || have_all_thrown_) throw;
  if (!failure_) failure_ = std::current_exception();
  exchange(0);
  std::rethrow_exception(failure_);
}

bool EvaluationAgreement::exchange(int signal) {
  const double seconds = seconds_since(exchanged_);
  const at::Tensor greatest = group_.reduce(
      at::tensor({static_cast<double>(signal), seconds, failure_ ? 1.0 : 0.0}, at::kDouble),
      Reduction::max);
  const double* const value = greatest.const_data_ptr<double>();
  if (value[2] != 0) {
    have_all_thrown_ = true;
    once(group_, true, [&] {
      if (failure_) std::rethrow_exception(failure_);
    });
  }
  if (!each_batch_) interval_ = next_interval(interval_, value[1], kExchangeInterval);
  batches_ = 0;
  exchanged_ = Clock::now();
  return value[0] != 0;
}

}  // namespace hasten
