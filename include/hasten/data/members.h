// File: hasten/data/members.h
// The members of a plain struct, without a line of code beside it: an aggregate of up to 12 members
// that has no base class. Internal; part of hasten/data/batch.h.
//
// C++20 has no reflection. How many members there are follows from how many initializers the struct
// takes, and structured bindings then name them. Trivially copyable structs are left alone: they
// cannot hold a tensor. Bit-fields and anonymous unions cannot be bound and are compile errors; a
// visit_tensors beside the struct (hasten/data/batch.h) avoids them.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace hasten::detail {

template <class T>
struct AnyMemberOf {
  template <class Member>
  requires(!std::is_same_v<std::remove_cvref_t<Member>, T>) operator Member() const;
};
template <class T>
struct AnyBaseOf {
  template <class Base>
  requires(std::is_base_of_v<Base, T> && !std::is_same_v<Base, T>) operator Base() const;
};

// 0: not known.
template <class T>
constexpr std::size_t number_of_members() {
  using Any = AnyMemberOf<T>;
  if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> || std::is_trivially_copyable_v<T> ||
                requires { T{AnyBaseOf<T>{}}; }) {
    return 0;
  } else {
    // Where a member has no value without an initializer, its place takes Any alone: the struct
    // then has more members than initializers {} say, and is not known.
    // clang-format off
    if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 12;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 11;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 10;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 9;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 8;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 7;
    else if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, {}, Any{}}; } ? 0 : 6;
    else if constexpr (requires { T{{}, {}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, {}, Any{}}; } ? 0 : 5;
    else if constexpr (requires { T{{}, {}, {}, {}}; })
      return requires { T{{}, {}, {}, {}, Any{}}; } ? 0 : 4;
    else if constexpr (requires { T{{}, {}, {}}; })
      return requires { T{{}, {}, {}, Any{}}; } ? 0 : 3;
    else if constexpr (requires { T{{}, {}}; })
      return requires { T{{}, {}, Any{}}; } ? 0 : 2;
    else if constexpr (requires { T{{}}; })
      return requires { T{{}, Any{}}; } ? 0 : 1;
    else
      return 0;
    // clang-format on
  }
}

template <class T>
concept PlainStruct = number_of_members<T>()
> 0;

// References to the members, in their order.
template <PlainStruct T>
auto members_of(T& value) {
  constexpr std::size_t count = number_of_members<T>();
  if constexpr (count == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

}  // namespace hasten::detail
