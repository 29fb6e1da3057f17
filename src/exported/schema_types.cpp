#include "exported/schema_types.h"

#include <c10/util/Exception.h>

#include <map>

namespace hasten::exported {
namespace {

Size read_size(const JsonCursor& value) {
  const auto [tag, size] = value.alternative();
  if (tag == "as_int") return size.integer();
  if (tag == "as_expr") return size["expr_str"].text();
  value.fail(tag, "as_int or as_expr");
}

std::vector<Size> read_sizes(const JsonCursor& list) {
  std::vector<Size> sizes;
  for (const JsonCursor& item : list.items()) sizes.push_back(read_size(item));
  return sizes;
}

}  // namespace

at::ScalarType read_scalar_type(const JsonCursor& value) {
  static const std::map<std::int64_t, at::ScalarType> types = {{1, at::kByte},
                                                               {2, at::kChar},
                                                               {3, at::kShort},
                                                               {4, at::kInt},
                                                               {5, at::kLong},
                                                               {6, at::kHalf},
                                                               {7, at::kFloat},
                                                               {8, at::kDouble},
                                                               {9, at::kComplexHalf},
                                                               {10, at::kComplexFloat},
                                                               {11, at::kComplexDouble},
                                                               {12, at::kBool},
                                                               {13, at::kBFloat16},
                                                               {28, at::kUInt16},
                                                               {29, at::kFloat8_e4m3fn},
                                                               {30, at::kFloat8_e5m2},
                                                               {31, at::kFloat8_e4m3fnuz},
                                                               {32, at::kFloat8_e5m2fnuz}};
  const auto found = types.find(value.integer());
  if (found == types.end())
    value.fail("data type " + std::to_string(value.integer()), "a data type of schema 8.17");
  return found->second;
}

at::Layout read_layout(const JsonCursor& value) {
  if (value.integer() != 7)
    value.fail("layout " + std::to_string(value.integer()), "7, a strided tensor");
  return at::kStrided;
}

at::MemoryFormat read_memory_format(const JsonCursor& value) {
  switch (value.integer()) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    case 4:
      return at::MemoryFormat::Preserve;
    default:
      value.fail("memory format " + std::to_string(value.integer()), "1 to 4");
  }
}

at::Device read_device(const JsonCursor& value) {
  try {
    at::Device device(value["type"].text());
    if (const auto index = value.find("index")) {
      if (index->integer() < 0 || index->integer() > 127)
        index->fail(std::to_string(index->integer()), "0 to 127");
      device.set_index(static_cast<c10::DeviceIndex>(index->integer()));
    }
    return device;
  } catch (const c10::Error&) {
    value.fail(value["type"].text(), "a device that LibTorch knows");
  }
}

TensorMeta read_tensor_meta(const JsonCursor& value) {
  read_layout(value["layout"]);
  TensorMeta meta;
  meta.dtype = read_scalar_type(value["dtype"]);
  meta.sizes = read_sizes(value["sizes"]);
  meta.strides = read_sizes(value["strides"]);
  meta.storage_offset = read_size(value["storage_offset"]);
  meta.requires_grad = value["requires_grad"].boolean();
  return meta;
}

}  // namespace hasten::exported
