#include "trainer/work_counter.h"

#include <optional>
#include <utility>

namespace hasten {

void WorkCounter::count(const RealRows& rows, StepTotals& totals) {
  const TensorDict* const columns = rows.batch.get_if<TensorDict>();
  const bool asks = traits_ != nullptr && columns != nullptr;
  const std::optional<double> flos = asks ? traits_->floating_point_ops(*columns) : std::nullopt;
  if (!flos && std::exchange(knows_flos_, false) && traits_ != nullptr) {
    logger_.warning(
        "total_flos is not counted: the model does not know the floating-point operations of its "
        "batches. Override TrainingTraits::floating_point_ops to count them");
  }
  if (rows.count == 0) return;
  totals.flos += flos.value_or(0);
  if (tokens_ == CountTokens::no) return;
  std::optional<std::int64_t> tokens;
  if (asks) {
    tokens = tokens_ == CountTokens::non_padding ? traits_->real_token_count(*columns)
                                                 : traits_->token_count(*columns);
  }
  if (!tokens) {
    logger_.warning_once(
        "num_input_tokens_seen is not counted: the model finds no tokens in its batches");
  }
  totals.tokens += static_cast<double>(tokens.value_or(0));
}

}  // namespace hasten
