#include "device/cuda/nccl.h"

#include "device/loadable_module.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

using Make = c10d::Backend*(const CollectiveSettings&);

const Module<Make>& module() {
  static const auto once = load_module<Make>("libhasten_nccl.so", "hasten_nccl_backend");
  return once;
}

class Nccl final : public CollectiveBackend {
 public:
  std::string name() const override { return "nccl"; }
  c10d::ProcessGroup::BackendType type() const override {
    return c10d::ProcessGroup::BackendType::NCCL;
  }
  bool is_negotiated() const override { return true; }

  std::string missing_reason() const override { return module().missing; }

  void check_encryption(bool must_encrypt) const override {
    if (!must_encrypt) return;
    throw ConfigError(
        "process.encryption",
        {.what = "encryption between machines",
         .got = "NCCL, which does not encrypt",
         .hint =
             "omit --encrypt (HASTEN_ENCRYPT) in a network that you trust (CPU tensors are then "
             "still encrypted if the job has a token), or set "
             "HASTEN_PROCESS_GROUP_BACKEND=gloo, which is slow"});
  }

  void throw_missing(const std::string& missing_here) const override {
    throw UsageError(
        "process.no-nccl",
        {.what = "backend nccl",
         .got = missing_here.empty() ? "a rank that cannot load it" : missing_here,
         .expected = "libhasten_nccl.so next to libhasten.so, and LibTorch's CUDA library",
         .hint = "build hasten on a machine with nccl.h and CUDA's headers, or do not choose a "
                 "backend: Gloo then carries GPU tensors through the CPU"});
  }

  c10::intrusive_ptr<c10d::Backend> make(const CollectiveSettings& settings) const override {
    TORCH_CHECK(module().function != nullptr, "NCCL: ", module().missing);
    return c10::intrusive_ptr<c10d::Backend>::reclaim(module().function(settings));
  }
};

}  // namespace

const CollectiveBackend& nccl() {
  static const Nccl one;
  return one;
}

}  // namespace hasten
