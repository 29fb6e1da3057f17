#include "checkpoint/adamw_class.h"

#include <typeinfo>

#include "hasten/optim/adamw.h"

namespace hasten {

bool is_hasten_adamw(const torch::optim::Optimizer& optimizer) {
  return typeid(optimizer) == typeid(AdamW);
}

}  // namespace hasten
