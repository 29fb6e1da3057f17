#include "anatomy/operand_casts.h"

#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>

#include <set>
#include <string>

namespace hasten::anatomy {
namespace {

using at::Tensor;
using c10::IValue;

// True for element-wise operators with kernels that read operands of several types without a cast.
bool reads_mixed_types(const std::string& name) {
  static const std::set<std::string> names = {"aten::masked_fill", "aten::masked_fill_",
                                              "aten::native_dropout_backward"};
  return names.count(name) != 0;
}

// Returns true if the operator only writes to the argument: out=.
bool is_output_only(const c10::Argument& argument) {
  return argument.kwarg_only() && argument.alias_info() != nullptr &&
         argument.alias_info()->isWrite();
}

bool is_real_or_complex(at::ScalarType type) {
  return at::isFloatingType(type) || at::isComplexType(type);
}

// True for kernels that convert the number in a comparison to a tensor.
bool makes_number_tensor(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::eq", "aten::ne", "aten::lt",
                                              "aten::le", "aten::gt", "aten::ge"};
  return op.schema().overload_name() == "Scalar" && names.count(op.schema().name()) != 0;
}

}  // namespace

std::int64_t operand_cast_bytes(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                                const std::vector<IValue>& results) {
  const std::string& name = op.schema().name();
  if (!op.hasTag(at::Tag::pointwise) || reads_mixed_types(name) || results.empty() ||
      !results[0].isTensor() || !results[0].toTensor().defined())
    return 0;
  const bool selects = name == "aten::where";  // its first operand only selects
  std::vector<Tensor> operands;
  std::int64_t bytes = 0;
  at::native::ResultTypeState types = {};
  for (std::size_t i = selects ? 1 : 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined() ||
        is_output_only(op.schema().arguments()[i]))
      continue;
    operands.push_back(arguments[i].toTensor());
    types = at::native::update_result_type_state(operands.back(), types);
  }
  if (operands.empty()) return 0;
  if (makes_number_tensor(op)) {
    const at::Scalar number = arguments[1].toScalar();
    types = at::native::update_result_type_state(number, types);
    operands.push_back(at::empty({}, at::device(at::kMeta).dtype(number.type())));
    bytes += static_cast<std::int64_t>(c10::elementSize(number.type()));
  }
  at::ScalarType common = at::native::result_type(types);
  const at::ScalarType result = results[0].toTensor().scalar_type();
  const bool in_place = op.schema().arguments()[0].alias_info() != nullptr;
  if (!is_real_or_complex(common) && is_real_or_complex(result) && !in_place) common = result;
  const auto copy = [&](const Tensor& x) {
    if (x.scalar_type() != common)
      bytes += x.numel() * static_cast<std::int64_t>(c10::elementSize(common));
  };
  for (const Tensor& each : operands) copy(each);
  if (in_place) copy(operands[0]);  // the result is computed in the common type, then cast
  return bytes;
}

}  // namespace hasten::anatomy
