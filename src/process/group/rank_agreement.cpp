#include "hasten/process/detail/rank_agreement.h"

#include <ATen/ATen.h>

namespace hasten {

bool is_true_on_all_ranks(const Group& group, bool own) {
  return group.reduce(at::scalar_tensor(own ? 0 : 1, at::kInt), Reduction::max).item<int>() == 0;
}

}  // namespace hasten
