#include "optim/quantized_moments.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/coalesced.h"
#include "optim/option_range.h"

namespace hasten {
namespace {

// Returns a tensor of the state. In the first step it is zeros. A loaded tensor may be on another
// device or have gaps, which the kernels do not support.
at::Tensor state_tensor(const char* optimizer, const std::string& name, ParamState& state,
                        at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor& value = state.tensors[name];
  if (!value.defined() && state.step == 1) value = at::zeros(shape, options);
  const auto described = [&](const at::Tensor& x) {
    return c10::str(name, " of shape ", x.sizes(), ", ", x.scalar_type());
  };
  if (!value.defined() || value.sizes() != shape || value.dtype() != options.dtype()) {
    const std::string got = value.defined() ? described(value) : "no " + name;
    if (!value.defined()) state.tensors.erase(name);
    throw DataError("optim.incomplete-state",
                    {.what = str(optimizer, ", the loaded state of a parameter"),
                     .got = got,
                     .expected = c10::str(name, " of shape ", shape, ", ", options.dtype()),
                     .hint = "resume with the options that the state was made with"});
  }
  value = value.to(options.device()).contiguous();
  return value;
}

}  // namespace

void check_quantization(const char* optimizer, std::int64_t bits, std::int64_t min_8bit_size) {
  require_option(bits == 8 || bits == 32, optimizer, "bits", bits, "8 or 32");
  require_at_least_0(optimizer, "min_8bit_size", static_cast<double>(min_8bit_size));
}

void check_moment_type(const char* optimizer, const at::Tensor& parameter) {
  if (parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kBFloat16) return;
  throw UsageError("optim.dtype", {.what = str("hasten::", optimizer, ", a parameter"),
                                   .got = c10::toString(parameter.scalar_type()),
                                   .expected = "Float or BFloat16"});
}

void add_moment(ops::Moments& moments, const char* optimizer, const std::string& name,
                const at::Tensor& parameter, ParamState& state, bool quantizes) {
  const at::TensorOptions plain = at::TensorOptions().device(parameter.device());
  moments.numbers.push_back(state_tensor(optimizer, name, state, parameter.sizes(),
                                         plain.dtype(quantizes ? at::kByte : at::kFloat)));
  moments.scales.push_back(quantizes ? state_tensor(optimizer, name + "_scale", state,
                                                    {ops::scale_count(parameter.numel())},
                                                    plain.dtype(at::kFloat))
                                     : at::empty({0}, plain.dtype(at::kFloat)));
}

MomentEntry::MomentEntry(const at::Tensor& parameter, const at::Tensor& given)
    : parameter(parameter), values(parameter.contiguous()) {
  const bool of_rows = given.is_sparse() && given.sparse_dim() == 1 &&
                       parameter.device().is_cpu() &&
                       given.scalar_type() == parameter.scalar_type();
  if (of_rows) {
    gradient = coalesced(given);
  } else {
    const at::Tensor dense = given.layout() == at::kStrided ? given : given.to_dense();
    gradient = dense.to(parameter.scalar_type()).contiguous();
  }
}

}  // namespace hasten
