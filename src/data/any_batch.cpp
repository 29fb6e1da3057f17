#include "hasten/data/detail/any_batch.h"

#include <c10/util/Type.h>

#include "hasten/base/error.h"

namespace hasten::detail {

void throw_batch_type(const std::type_info& given, const std::type_info& expected) {
  throw UsageError("data.batch-type",
                   {.what = "a batch",
                    .got = c10::demangle(given.name()),
                    .expected = c10::demangle(expected.name()),
                    .hint = "the dataset's collator must return the type that the model's "
                            "forward(), compute_loss and labels take"});
}

}  // namespace hasten::detail
