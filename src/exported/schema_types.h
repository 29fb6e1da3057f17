// File: exported/schema_types.h (internal)
// The values of export's schema that are not graphs: data types, layouts, devices, sizes, and the
// metadata of a tensor.
//
//   const TensorMeta meta = read_tensor_meta(graph["tensor_values"].find("x").value());
//
// Throws DataError "exported.graph" for unknown values. Thread rule: pure functions. Source:
// torch/_export/serde/schema.py of LibTorch 2.11, schema 8.17.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "exported/json_cursor.h"

namespace hasten::exported {

at::ScalarType read_scalar_type(const JsonCursor& value);
// Refuses sparse layouts.
at::Layout read_layout(const JsonCursor& value);
at::MemoryFormat read_memory_format(const JsonCursor& value);
at::Device read_device(const JsonCursor& value);

// A size is a number, or an expression in the notation of SymPy's srepr.
using Size = std::variant<std::int64_t, std::string>;

struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  std::vector<Size> sizes, strides;
  Size storage_offset = std::int64_t{0};
  bool requires_grad = false;
};

TensorMeta read_tensor_meta(const JsonCursor& value);

}  // namespace hasten::exported
