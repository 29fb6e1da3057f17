// File: hasten/data/detail/members.h
// Finds the members of a plain struct, an aggregate of up to 12 members without a base class,
// without any code for the struct. Internal; part of hasten/data/batch.h.
//
// C++20 has no reflection. The number of members follows from the number of initializers that the
// struct accepts, and structured bindings then name them. Trivially copyable structs are skipped,
// since they cannot hold a tensor. Bit-fields and anonymous unions cannot be bound and cause a
// compile error; a visit_tensors for the struct (hasten/data/batch.h) avoids it.
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

// Returns 0 if the number is unknown.
template <class T>
constexpr std::size_t number_of_members() {
  using Any = AnyMemberOf<T>;
  if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> || std::is_trivially_copyable_v<T> ||
                requires { T{AnyBaseOf<T>{}}; }) {
    return 0;
  } else {
    // A member that {} cannot initialize accepts only Any. The struct then has more members than
    // the number of {} that it accepts, which the test with one more Any detects.
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

// Returns references to the members, in their order.
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
