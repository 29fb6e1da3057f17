#include "checkpoint/gradient_state.h"

#include <torch/torch.h>

#include <set>
#include <utility>

#include "checkpoint/sparse_parts.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Returns the gradient of this name in the file; undefined if there is none. It shares the file's
// memory.
at::Tensor gradient_of(const TensorDict& saved, const std::string& name,
                       const at::Tensor& parameter) {
  if (const auto dense = saved.find(name); dense != saved.end()) return dense->second;
  if (!has_sparse_parts(saved, name)) return {};
  return sparse_from_parts(saved, name, parameter.sizes());
}

// Returns a gradient like one that autograd makes: if it is dense, with the parameter's strides,
// because the order of a sum over the gradient depends on them.
at::Tensor own_copy(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.is_sparse()) return gradient.to(parameter.device(), /*non_blocking=*/false, true);
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace

TensorDict gradient_tensors(const ParameterNames& parameters) {
  TensorDict out;
  // Autograd may give two parameters gradients that share memory, which a file cannot express: two
  // sparse tables that read the same ids share the indices, two whose rows are added share the
  // values, and two dense parameters that are added as views share the whole gradient.
  std::set<std::pair<const c10::StorageImpl*, std::int64_t>> stored;
  const auto separate = [&](const at::Tensor& tensor) {
    const bool is_first =
        !tensor.has_storage() ||
        stored.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()).second;
    return is_first ? tensor : tensor.clone();
  };
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_sparse()) {
      out[name] = separate(gradient);
      continue;
    }
    add_sparse_parts(out, name, gradient);
    for (const char* part : {kIndicesPart, kValuesPart}) {
      at::Tensor& own = out[name + part];
      own = separate(own);
    }
  }
  return out;
}

void check_gradients(const ParameterNames& parameters, const TensorDict& saved,
                     const std::filesystem::path& file) {
  std::size_t used = 0;
  const auto throw_mismatch = [&](const std::string& name, const std::string& got) {
    throw DataError("checkpoint.gradients",
                    {.what = str(file.string(), ", gradient ", name),
                     .got = got,
                     .expected = "the gradient of a parameter of the prepared objects",
                     .hint = "load it with the model that the checkpoint was made with"});
  };
  for (const auto& [name, parameter] : parameters) {
    try {
      const at::Tensor gradient = gradient_of(saved, name, parameter);
      if (!gradient.defined()) continue;
      used += gradient.is_sparse() ? 3 : 1;
      if (gradient.sizes() != parameter.sizes() ||
          gradient.scalar_type() != parameter.scalar_type())
        throw_mismatch(name, "another shape or type than the parameter's");
    } catch (const c10::Error& error) {  // such as an index outside of the shape
      throw_mismatch(name, error.what_without_backtrace());
    }
  }
  if (used != saved.size())
    throw_mismatch(saved.begin()->first, str(saved.size() - used, " tensors of other parameters"));
}

void restore_gradients(const ParameterNames& parameters, const TensorDict& saved) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = gradient_of(saved, name, parameter);
    at::Tensor target = parameter;
    if (gradient.defined()) {
      target.mutable_grad() = own_copy(gradient, parameter);
    } else if (target.grad().defined()) {
      target.mutable_grad().reset();
    }
  }
}

}  // namespace hasten
