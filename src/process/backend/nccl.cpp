#include "process/backend/nccl.h"

#include "process/backend/loadable_module.h"

namespace hasten {
namespace {

using MakeNccl = c10d::Backend*(const NcclSettings&);

const Module<MakeNccl>& module() {
  static const auto once = load_module<MakeNccl>("libhasten_nccl.so", "hasten_nccl_backend");
  return once;
}

}  // namespace

std::string missing_nccl_reason() { return module().missing; }

c10::intrusive_ptr<c10d::Backend> nccl_backend(const NcclSettings& settings) {
  TORCH_CHECK(module().function != nullptr, "NCCL: ", module().missing);
  return c10::intrusive_ptr<c10d::Backend>::reclaim(module().function(settings));
}

}  // namespace hasten
