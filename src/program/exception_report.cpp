#include "program/exception_report.h"

#include <exception>
#include <filesystem>
#include <string_view>

#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// The beginnings of the list of functions at the end of c10::Error::what(). This library has no
// LibTorch, so it cannot call what_without_backtrace().
constexpr std::string_view kListsOfFunctions[] = {"\nException raised from ", "\nframe #0: "};

std::string_view without_list_of_functions(std::string_view message) {
  for (const std::string_view beginning : kListsOfFunctions)
    message = message.substr(0, message.find(beginning));
  return message;
}

ExceptionReport report_of(const Error& error) {
  return {.line = str("error[", error.code(), "]: ", error.what(), '\n'),
          .exit_code = error.exit_code()};
}

}  // namespace

ExceptionReport describe_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return report_of(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report_of(io_error_of(error));
  } catch (const std::exception& error) {
    return {.line = str("error: ", without_list_of_functions(error.what()), '\n')};
  } catch (...) {
    return {.line = "error: the program threw an object that is not a std::exception\n"};
  }
}

}  // namespace hasten
