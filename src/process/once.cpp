#include "hasten/process/once.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

constexpr int kOtherError = 1;  // what a command ends with for errors that are not hasten's

// What is thrown here, as it is told to the others.
std::string letter_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const ErrorText& text = error.text();
    return Json({{"code", error.code()},
                 {"what", text.what},
                 {"got", text.got},
                 {"expected", text.expected},
                 {"hint", text.hint},
                 {"exit_code", error.exit_code()}})
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (const std::exception& error) {
    return Json({{"other", error.what()}}).dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (...) {
    return Json({{"other", "an exception that is no std::exception"}}).dump();
  }
}

[[noreturn]] void throw_letter(const std::string& letter, std::size_t rank) {
  const Json json = Json::parse(letter);
  if (json.contains("other")) {
    throw Error("process.failed-elsewhere",
                {.what = str("rank ", rank, ", which works for all"),
                 .got = json.at("other").get<std::string>()},
                kOtherError);
  }
  const auto part = [&](const char* name) { return json.at(name).get<std::string>(); };
  throw Error(part("code"),
              {.what = part("what"),
               .got = part("got"),
               .expected = part("expected"),
               .hint = part("hint")},
              json.at("exit_code").get<int>());
}

}  // namespace

void once(const Group& group, bool here, const std::function<void()>& work) {
  if (group.size() == 1) {
    if (here) work();
    return;
  }
  std::exception_ptr thrown;
  try {
    if (here) work();
  } catch (...) {
    thrown = std::current_exception();
  }
  const auto letters = group.gather_object(thrown ? letter_of(thrown) : "");
  if (thrown) std::rethrow_exception(thrown);
  for (std::size_t rank = 0; rank < letters.size(); ++rank) {
    if (!letters[rank].empty()) throw_letter(letters[rank], rank);
  }
}

std::string main_says(const Group& group, const std::function<std::string()>& answer) {
  std::string said;
  once(group, group.rank() == 0, [&] { said = answer(); });
  return group.broadcast_object(said);
}

}  // namespace hasten
