#include "anatomy/dry_devices.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "anatomy/tensor_shapes.h"
#include "device/device.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

// True for operators of LibTorch that take CPU tensors together with GPU tensors: copies, indexing,
// and operators that read lengths on the host.
bool takes_several_devices(std::string_view name) {
  constexpr std::array<std::string_view, 12> prefixes = {
      "aten::copy",  "aten::_copy",      "aten::_to_copy",  "aten::_foreach_copy",
      "aten::index", "aten::_index_put", "aten::_unsafe_",  "aten::slice_scatter",
      "aten::set_",  "aten::_pack_",     "aten::_ctc_loss", "aten::resize"};
  return !name.starts_with("aten::") ||
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view each) { return name.starts_with(each); });
}

}  // namespace

void check_same_device(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  bool any_on_gpu = false, any_on_cpu = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& x) {
      if (!x.defined()) return;
      any_on_gpu |= device_of(x.device()).is_simulated();
      any_on_cpu |= x.is_cpu() && x.dim() > 0;
    });
  }
  if (!any_on_gpu || !any_on_cpu || takes_several_devices(name)) return;
  const std::string module = Anatomy::current_module();
  throw UsageError("anatomy.several-devices",
                   {.what = "dry run for a GPU",
                    .got = str(name, module.empty() ? "" : " in " + module,
                               " with tensors on the GPU and on the CPU, which fails on a GPU"),
                    .expected = "all tensors of an operator on one device",
                    .hint = "make or move the tensors there: x.to(accelerator.device())"});
}

}  // namespace hasten::anatomy
