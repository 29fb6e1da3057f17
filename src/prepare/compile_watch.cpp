#include "prepare/compile_watch.h"

#include "hasten/base/text.h"

namespace hasten {
namespace {

// The number of batches that always compile: the first one, and the second one, which uses tensors
// that the first one created.
constexpr std::int64_t kWarmUpBatches = 2;
// The largest number of warnings about new shapes.
constexpr std::int64_t kMaxWarnings = 4;
// The number of consecutive batches of known shapes that must compile before a warning.
constexpr std::int64_t kRecompilationsBeforeWarning = 5;

std::string shape_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> shapes;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    std::vector<std::string> sizes;
    for (const std::int64_t size : tensor.sizes()) sizes.push_back(str(size));
    shapes.push_back(str(c10::toString(tensor.scalar_type()), " [", join(sizes, ", "), "]"));
  }
  return join(shapes, ", ");
}

}  // namespace

void CompileWatch::on_batch(const std::vector<at::Tensor>& tensors) {
  if (batches_ > 0) check_last_batch();
  shape_ = shape_of(tensors);
  is_new_ = seen_.insert(shape_).second;
  programs_before_ = programs_();
  ++batches_;
}

void CompileWatch::check_last_batch() {
  if (is_new_ || batches_ <= kWarmUpBatches || programs_() > programs_before_) wait_();
  const std::int64_t compiled = programs_() - programs_before_;
  consecutive_ = compiled > 0 && !is_new_ ? consecutive_ + 1 : 0;
  if (compiled == 0 || batches_ <= kWarmUpBatches) return;
  if (is_new_) {
    warn_about_new_shape(compiled);
  } else {
    warn_about_recompilation(compiled);
  }
}

void CompileWatch::warn_about_new_shape(std::int64_t programs) {
  if (++warnings_ > kMaxWarnings) return;
  logger_.warning(str("batch ", batches_, " had a new shape, ", shape_, ": ", programs,
                      " programs were compiled for it",
                      warnings_ == kMaxWarnings
                          ? str(". Shapes keep changing (", seen_.size(),
                                " so far); further warnings are suppressed. Pad batches "
                                "to a few lengths: see StaticShapes")
                          : ""));
}

// Ignores single batches, because the first evaluation, the first log and the like compile too.
void CompileWatch::warn_about_recompilation(std::int64_t programs) {
  if (consecutive_ != kRecompilationsBeforeWarning) return;
  logger_.warning(str(programs, " programs were compiled in batch ", batches_,
                      ", and some in each of ", kRecompilationsBeforeWarning,
                      " consecutive batches, although their shapes are not new (", shape_,
                      "). Each new position of a slice needs a program too: replace x[i] and "
                      "narrow() by x.index_select() with a tensor"));
}

}  // namespace hasten
