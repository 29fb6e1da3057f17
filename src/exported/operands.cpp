#include "exported/operands.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

namespace hasten::exported {
namespace {

using Kind = Operand::Kind;

Operand constant(c10::IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

Operand list_of(Kind kind, std::vector<Operand> items) {
  Operand operand;
  operand.kind = kind;
  operand.items = std::move(items);
  return operand;
}

template <class Element, class Read>
Operand constant_list(const JsonCursor& value, Read read) {
  c10::List<Element> list;
  for (const JsonCursor& item : value.items()) list.push_back(read(item));
  return constant(std::move(list));
}

}  // namespace

at::Tensor wrapped_number(const c10::IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Operand OperandReader::read(const JsonCursor& argument, const c10::Argument& expected) const {
  const auto [tag, value] = argument.alternative();
  const c10::TypePtr& declared = expected.real_type();
  const auto* const optional = declared->castRaw<c10::OptionalType>();
  if (tag == "as_none" && optional != nullptr) return constant({});
  if (tag == "as_bool" &&
      (expected.name() == "cudnn_enabled" || expected.name() == "cudnn_enable")) {
    Operand flag;
    flag.kind = Kind::cudnn_flag;
    return flag;
  }
  const auto operand =
      read_typed(tag, value, optional != nullptr ? *optional->getElementType() : *declared);
  if (!operand) argument.fail(tag, declared->str() + " for the parameter " + expected.name());
  return *operand;
}

Operand OperandReader::read(const JsonCursor& argument) const {
  const auto [tag, value] = argument.alternative();
  if (tag == "as_none") return constant({});
  if (const auto tensor = read_tensor(tag, value)) return *tensor;
  if (const auto number = read_number(tag, value)) return *number;
  if (const auto list = read_list(tag, value, *c10::TensorType::get())) return *list;
  argument.fail(tag, "a tensor, a list of tensors or a number");
}

std::optional<Operand> OperandReader::read_typed(const std::string& tag, const JsonCursor& value,
                                                 const c10::Type& type) const {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: {
      if (const auto tensor = read_tensor(tag, value)) return tensor;
      auto number = read_number(tag, value);
      if (number && number->kind == Kind::slot) number->wraps_number = true;
      if (number && number->kind == Kind::constant)
        number->constant = wrapped_number(number->constant);
      return number;
    }
    case c10::TypeKind::NumberType:
      return read_number(tag, value);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: {
      auto number = read_number(tag, value);
      if (!number) return std::nullopt;
      if (number->kind == Kind::slot)
        return kind_of(*number) == ValueKind::integer ? number : std::nullopt;
      if (number->constant.isBool()) number->constant = std::int64_t{number->constant.toBool()};
      return number->constant.isInt() ? number : std::nullopt;
    }
    case c10::TypeKind::FloatType: {
      auto number = read_number(tag, value);
      if (!number) return std::nullopt;
      if (number->kind == Kind::slot) {
        number->to_double = kind_of(*number) != ValueKind::number;
        return number;
      }
      if (number->constant.isInt())
        number->constant = static_cast<double>(number->constant.toInt());
      return number->constant.isDouble() ? number : std::nullopt;
    }
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType: {
      auto number = read_number(tag, value);
      if (!number) return std::nullopt;
      if (number->kind == Kind::slot)
        return kind_of(*number) == ValueKind::boolean ? number : std::nullopt;
      if (number->constant.isInt()) number->constant = number->constant.toInt() != 0;
      return number->constant.isBool() ? number : std::nullopt;
    }
    case c10::TypeKind::ListType:
      return read_list(tag, value, *type.castRaw<c10::ListType>()->getElementType());
    default:
      return read_setting(tag, value, type.kind());
  }
}

std::optional<Operand> OperandReader::read_tensor(const std::string& tag,
                                                  const JsonCursor& value) const {
  if (tag == "as_tensor") return tensor_slot(value);
  if (tag != "as_optional_tensor") return std::nullopt;
  const auto [inner_tag, inner] = value.alternative();
  return inner_tag == "as_none" ? constant({}) : tensor_slot(inner);
}

std::optional<Operand> OperandReader::read_number(const std::string& tag,
                                                  const JsonCursor& value) const {
  if (tag == "as_int") return constant(value.integer());
  if (tag == "as_float") return constant(value.number());
  if (tag == "as_bool") return constant(value.boolean());
  if (tag == "as_complex")
    return constant(c10::complex<double>(value["real"].number(), value["imag"].number()));
  if (tag != "as_sym_int" && tag != "as_sym_float" && tag != "as_sym_bool") return std::nullopt;
  const auto [inner_tag, inner] = value.alternative();
  if (inner_tag == "as_name") {
    Operand slot = slot_of(inner);
    if (kind_of(slot) == ValueKind::tensor) inner.fail("the name of a tensor", "that of a number");
    return slot;
  }
  return read_number(inner_tag, inner);
}

std::optional<Operand> OperandReader::read_setting(const std::string& tag, const JsonCursor& value,
                                                   c10::TypeKind type) const {
  if (type == c10::TypeKind::StringType && tag == "as_string") return constant(value.text());
  if (type == c10::TypeKind::ScalarTypeType && tag == "as_scalar_type")
    return constant(static_cast<std::int64_t>(read_scalar_type(value)));
  if (type == c10::TypeKind::LayoutType && tag == "as_layout")
    return constant(static_cast<std::int64_t>(read_layout(value)));
  if (type == c10::TypeKind::MemoryFormatType && tag == "as_memory_format")
    return constant(static_cast<std::int64_t>(read_memory_format(value)));
  if (type == c10::TypeKind::DeviceObjType && tag == "as_device") {
    Operand device = constant(read_device(value));
    device.kind = Kind::device;
    return device;
  }
  return std::nullopt;
}

std::optional<Operand> OperandReader::read_list(const std::string& tag, const JsonCursor& value,
                                                const c10::Type& element) const {
  const auto* const optional = element.castRaw<c10::OptionalType>();
  const c10::TypeKind type = (optional != nullptr ? *optional->getElementType() : element).kind();
  const bool is_integer = type == c10::TypeKind::IntType || type == c10::TypeKind::SymIntType;
  if (tag == "as_tensors") {
    // Empty lists of every type have this tag.
    if (is_integer && value.items().empty()) return constant(c10::List<std::int64_t>());
    if (type != c10::TypeKind::TensorType) return std::nullopt;
    std::vector<Operand> items;
    for (const JsonCursor& item : value.items()) items.push_back(tensor_slot(item));
    return list_of(optional != nullptr ? Kind::optional_tensors : Kind::tensors, std::move(items));
  }
  if (tag == "as_optional_tensors" && type == c10::TypeKind::TensorType && optional != nullptr) {
    std::vector<Operand> items;
    for (const JsonCursor& item : value.items()) {
      const auto [inner_tag, inner] = item.alternative();
      items.push_back(inner_tag == "as_none" ? constant({}) : tensor_slot(inner));
    }
    return list_of(Kind::optional_tensors, std::move(items));
  }
  if (is_integer) {
    if (tag == "as_ints")
      return constant_list<std::int64_t>(value, [](const auto& item) { return item.integer(); });
    if (tag == "as_sym_ints") {
      std::vector<Operand> items;
      for (const JsonCursor& item : value.items()) {
        const auto [inner_tag, inner] = item.alternative();
        items.push_back(inner_tag == "as_int" ? constant(inner.integer()) : slot_of(inner));
        if (items.back().kind == Kind::slot && kind_of(items.back()) != ValueKind::integer)
          inner.fail("the name of another value", "that of an integer");
      }
      return list_of(Kind::integers, std::move(items));
    }
    if (tag == "as_int" || tag == "as_sym_int") {
      const auto number = read_typed(tag, value, *c10::IntType::get());
      return number ? std::optional(list_of(Kind::integers, {*number})) : std::nullopt;
    }
  }
  if (type == c10::TypeKind::FloatType) {
    if (tag == "as_floats" || tag == "as_ints")
      return constant_list<double>(value, [](const auto& item) { return item.number(); });
    if (tag == "as_float" || tag == "as_int") return constant(c10::List<double>({value.number()}));
  }
  if (type == c10::TypeKind::BoolType && tag == "as_bools")
    return constant_list<bool>(value, [](const auto& item) { return item.boolean(); });
  if (type == c10::TypeKind::StringType && tag == "as_strings")
    return constant_list<std::string>(value, [](const auto& item) { return item.text(); });
  return std::nullopt;
}

Operand OperandReader::slot_of(const JsonCursor& name) const {
  const auto found = slots_.find(name.text());
  if (found == slots_.end()) name.fail(name.text(), "the name of a value that is computed earlier");
  Operand operand;
  operand.kind = Kind::slot;
  operand.slot = found->second;
  return operand;
}

Operand OperandReader::tensor_slot(const JsonCursor& argument) const {
  Operand operand = slot_of(argument["name"]);
  // torch.export writes some sizes as if they were tensors.
  operand.wraps_number = kind_of(operand) != ValueKind::tensor;
  return operand;
}

ValueKind OperandReader::kind_of(const Operand& operand) const {
  return kinds_[static_cast<std::size_t>(operand.slot)];
}

}  // namespace hasten::exported
