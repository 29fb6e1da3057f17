// File: hasten/options/detail/precision.h
// The type in which matrix products are computed. hasten/prepare/detail/autocast.h says what each
// means.
//
//   const Precision precision = from_name<Precision>("bf16").value();
//
// Thread rule: values.
#pragma once

#include <string_view>

#include "hasten/options/detail/names.h"

namespace hasten {

enum class Precision { no, bf16, fp16 };

template <>
struct Names<Precision> {
  static constexpr std::string_view text[] = {"no", "bf16", "fp16"};
};

}  // namespace hasten
