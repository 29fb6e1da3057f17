#include "prepare/compile_watch.h"

#include "hasten/base/text.h"

namespace hasten {
namespace {

// Batches that always compile: the first, and the second, which uses tensors made in the first.
constexpr std::int64_t kWarmUp = 2;
// Warnings about new shapes, at most.
constexpr std::int64_t kTold = 4;
// Consecutive batches of known shapes that compile before a warning.
constexpr std::int64_t kPatience = 5;

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
  if (batches_ > 0) judge_last_batch();
  shape_ = shape_of(tensors);
  is_new_ = seen_.insert(shape_).second;
  before_ = programs_();
  ++batches_;
}

void CompileWatch::judge_last_batch() {
  if (is_new_ || batches_ <= kWarmUp || programs_() > before_) wait_();
  const std::int64_t compiled = programs_() - before_;
  in_a_row_ = compiled > 0 && !is_new_ ? in_a_row_ + 1 : 0;
  if (compiled == 0 || batches_ <= kWarmUp) return;
  is_new_ ? tell_new_shape(compiled) : tell_known_shape(compiled);
}

void CompileWatch::tell_new_shape(std::int64_t programs) {
  if (++told_ > kTold) return;
  logger_.warning(str("batch ", batches_, " had a new shape, ", shape_, ": ", programs,
                      " programs were compiled for it",
                      told_ == kTold ? str(". Shapes keep changing (", seen_.size(),
                                           " so far); further warnings are suppressed. Pad batches "
                                           "to a few lengths: see StaticShapes")
                                     : ""));
}

// Ignores single batches: the first evaluation, the first log and the like compile too.
void CompileWatch::tell_known_shape(std::int64_t programs) {
  if (in_a_row_ != kPatience) return;
  logger_.warning(str(programs, " programs were compiled in batch ", batches_,
                      ", and some in each of ", kPatience,
                      " consecutive batches, although their shapes are not new (", shape_,
                      "). Each new position of a slice needs a program too: replace x[i] and "
                      "narrow() by x.index_select() with a tensor"));
}

}  // namespace hasten
