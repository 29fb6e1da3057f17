#include "tpu/module/dry/module.h"

#include <protozero/pbf_reader.hpp>

namespace hasten::dry_tpu {
namespace {

using Reader = protozero::pbf_reader;

// The numbers of XLA's types, and of the fields below, are those in xla_data.proto and hlo.proto.
enum class Type : std::int32_t { tuple = 13 };

std::int64_t bits_of(std::int32_t type) {
  switch (type) {
    case 1:  // PRED
    case 2:  // S8
    case 6:  // U8
      return 8;
    case 3:   // S16
    case 7:   // U16
    case 10:  // F16
    case 16:  // BF16
      return 16;
    case 4:   // S32
    case 8:   // U32
    case 11:  // F32
      return 32;
    case 5:   // S64
    case 9:   // U64
    case 12:  // F64
    case 15:  // C64
      return 64;
    case 18:  // C128
      return 128;
    case 21:  // S4
    case 22:  // U4
    case 32:  // F4E2M1FN
      return 4;
    case 26:  // S2
    case 27:  // U2
      return 2;
    case 14:  // OPAQUE
    case 17:  // TOKEN
      return 0;
    default:  // 8-bit floats
      return 8;
  }
}

template <class Range>
std::vector<std::int64_t> numbers(const Range& range) {
  return {range.begin(), range.end()};
}

// Appends the numbers of a repeated field, which is packed or has one entry for each number.
void add_numbers(Reader& field, std::vector<std::int64_t>& to) {
  if (field.wire_type() == protozero::pbf_wire_type::length_delimited) {
    for (const std::int64_t each : numbers(field.get_packed_int64())) to.push_back(each);
  } else {
    to.push_back(field.get_int64());
  }
}

void read_layout(Reader layout, Shape& shape) {
  while (layout.next()) {
    switch (layout.tag()) {
      case 1:
        add_numbers(layout, shape.minor_to_major);
        break;
      case 6: {
        Reader tile = layout.get_message();
        std::vector<std::int64_t>& sizes = shape.tiles.emplace_back();
        while (tile.next(1)) add_numbers(tile, sizes);
        break;
      }
      case 7:
        if (const std::int64_t bits = layout.get_int64(); bits > 0) shape.element_bits = bits;
        break;
      case 16:
        if (const std::int64_t step = layout.get_int64(); step > 0) shape.tail_alignment = step;
        break;
      default:
        layout.skip();
    }
  }
}

// Appends a shape. For a tuple, appends its parts one after the other.
void read_shape(Reader message, std::vector<Shape>& to) {
  Shape shape;
  std::int32_t type = 0;
  std::vector<Shape> parts;
  Reader layout;
  while (message.next()) {
    switch (message.tag()) {
      case 2:
        type = message.get_enum();
        break;
      case 3:
        add_numbers(message, shape.dimensions);
        break;
      case 4:
        read_shape(message.get_message(), parts);
        break;
      case 5:
        layout = message.get_message();
        break;
      default:
        message.skip();
    }
  }
  if (type == static_cast<std::int32_t>(Type::tuple)) {
    to.insert(to.end(), parts.begin(), parts.end());
    return;
  }
  shape.element_bits = bits_of(type);
  read_layout(layout, shape);
  to.push_back(std::move(shape));
}

void read_program_shape(Reader message, CompiledModule& module) {
  while (message.next()) {
    if (message.tag() == 1) {
      read_shape(message.get_message(), module.parameters);
    } else if (message.tag() == 2) {
      read_shape(message.get_message(), module.results);
    } else {
      message.skip();
    }
  }
}

struct Alias {
  std::size_t result = 0;
  std::int64_t parameter = -1;
};

Alias read_alias(Reader entry) {
  Alias alias;
  std::vector<std::int64_t> result;  // empty if it is the only result
  alias.parameter = 0;
  while (entry.next()) {
    if (entry.tag() == 1) {
      add_numbers(entry, result);
    } else if (entry.tag() == 2) {
      alias.parameter = entry.get_int64();
    } else {
      entry.skip();
    }
  }
  if (!result.empty()) alias.result = static_cast<std::size_t>(result.front());
  return alias;
}

CompiledModule read_hlo(Reader message) {
  CompiledModule module;
  std::vector<Alias> aliases;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        module.name = message.get_string();
        break;
      case 4:
        read_program_shape(message.get_message(), module);
        break;
      case 8: {
        Reader all = message.get_message();
        while (all.next(1)) aliases.push_back(read_alias(all.get_message()));
        break;
      }
      default:
        message.skip();
    }
  }
  module.donated_parameters.assign(module.results.size(), -1);
  for (const Alias& alias : aliases)
    if (alias.result < module.results.size() &&
        alias.parameter < static_cast<std::int64_t>(module.parameters.size()))
      module.donated_parameters[alias.result] = alias.parameter;
  return module;
}

}  // namespace

std::optional<CompiledModule> read_module(std::string_view format, std::string_view text) {
  try {
    Reader message(text.data(), text.size());
    if (format == "hlo") return read_hlo(message);
    if (format == "hlo_with_config" && message.next(1)) return read_hlo(message.get_message());
  } catch (const protozero::exception&) {  // malformed
  } catch (const std::out_of_range&) {
  }
  return std::nullopt;
}

}  // namespace hasten::dry_tpu
