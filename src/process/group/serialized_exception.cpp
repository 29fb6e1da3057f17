#include "process/group/serialized_exception.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/json_line.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

template <class... Types>
struct TypeList {
  // The position of the error's type in the list, from 1, or 0 if it is not in the list.
  static std::int64_t number_of(const Error& error) {
    std::int64_t number = 0, at = 0;
    ((++at, number = number == 0 && dynamic_cast<const Types*>(&error) ? at : number), ...);
    return number;
  }
  static std::exception_ptr make(std::int64_t number, const std::string& code,
                                 const ErrorText& text) {
    std::exception_ptr error;
    std::int64_t at = 0;
    const auto make_if_next = [&]<class Type>(std::type_identity<Type>) {
      if (++at == number) error = std::make_exception_ptr(Type(code, text));
    };
    (make_if_next(std::type_identity<Types>{}), ...);
    return error;
  }
};
using Types = TypeList<UsageError, ConfigError, DataError, IoError, MemoryError, DivergedError>;

}  // namespace

std::string serialize_exception(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const ErrorText& text = error.text();
    return json_line({{"type", Types::number_of(error)},
                      {"code", error.code()},
                      {"what", text.what},
                      {"got", text.got},
                      {"expected", text.expected},
                      {"hint", text.hint},
                      {"exit_code", error.exit_code()}});
  } catch (const std::exception& error) {
    return json_line({{"message", error.what()}});
  } catch (...) {
    return json_line({{"message", "an object that is not a std::exception"}});
  }
}

RemoteException deserialize_exception(const std::string& serialized) {
  const Json json = Json::parse(serialized);
  const auto field = [&](const char* name) { return json.at(name).get<std::string>(); };
  if (json.contains("message")) return {.error = nullptr, .message = field("message")};
  const ErrorText text{.what = field("what"),
                       .got = field("got"),
                       .expected = field("expected"),
                       .hint = field("hint")};
  std::exception_ptr error = Types::make(json.at("type").get<std::int64_t>(), field("code"), text);
  if (!error)
    error = std::make_exception_ptr(Error(field("code"), text, json.at("exit_code").get<int>()));
  return {.error = error, .message = {}};
}

}  // namespace hasten
