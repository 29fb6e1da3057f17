// File: exported/operands.h (internal)
// Reads the arguments of a node as operands of the types that an operator's schema has.
//
//   const OperandReader reader(scope.slots, scope.kinds);
//   operands.push_back(reader.read(argument["arg"], schema.arguments()[0]));
//
// As in Python's argument parser, a number for a tensor becomes a tensor that does not take part in
// type promotion, an integer for a float becomes a double, and a number for a list becomes a list.
// Everything else must have the type of the schema. Throws DataError "exported.graph". Thread rule:
// immutable; refers to the maps that the constructor receives.
#pragma once

#include <ATen/core/function_schema.h>

#include <map>
#include <string>
#include <vector>

#include "exported/json_cursor.h"
#include "exported/program.h"

namespace hasten::exported {

enum class ValueKind { tensor, integer, number, boolean };

class OperandReader {
 public:
  OperandReader(const std::map<std::string, int>& slots, const std::vector<ValueKind>& kinds)
      : slots_(slots), kinds_(kinds) {}

  // Reads an argument for a parameter of an operator.
  Operand read(const JsonCursor& argument, const c10::Argument& expected) const;
  // Reads an operand of control flow or an output. It may have any type except a list of numbers.
  Operand read(const JsonCursor& argument) const;

 private:
  std::optional<Operand> read_tensor(const std::string& tag, const JsonCursor& value) const;
  std::optional<Operand> read_number(const std::string& tag, const JsonCursor& value) const;
  std::optional<Operand> read_setting(const std::string& tag, const JsonCursor& value,
                                      c10::TypeKind type) const;
  std::optional<Operand> read_list(const std::string& tag, const JsonCursor& value,
                                   const c10::Type& element) const;
  std::optional<Operand> read_typed(const std::string& tag, const JsonCursor& value,
                                    const c10::Type& type) const;
  Operand slot_of(const JsonCursor& name) const;
  ValueKind kind_of(const Operand& operand) const;
  Operand tensor_slot(const JsonCursor& argument) const;

  const std::map<std::string, int>& slots_;
  const std::vector<ValueKind>& kinds_;
};

// A number as a tensor that does not take part in type promotion.
at::Tensor wrapped_number(const c10::IValue& number);

}  // namespace hasten::exported
