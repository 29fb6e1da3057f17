// Makes the values of a call's arguments from their names in the operator's schema.
//
//   values_by_name("aten::sum", "dim_IntList", {{"dim", c10::List<std::int64_t>{0}}});
//
// The result has an entry for each argument, as CallShapes::values has.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <string>
#include <vector>

namespace hasten::benchmarks {

inline std::vector<c10::IValue> values_by_name(const std::string& name, const char* overload,
                                               const std::map<std::string, c10::IValue>& named) {
  std::vector<c10::IValue> values;
  const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!found || named.empty()) return values;
  for (const c10::Argument& argument : found->schema().arguments()) {
    const auto value = named.find(argument.name());
    values.push_back(value == named.end() ? c10::IValue() : value->second);
  }
  return values;
}

}  // namespace hasten::benchmarks
