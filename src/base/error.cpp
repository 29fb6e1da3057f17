#include "hasten/base/error.h"

#include <utility>

namespace hasten {
namespace {

std::string format_error(const ErrorText& text) {
  std::string out = text.what;
  if (!text.got.empty()) out += ": got " + text.got;
  if (!text.expected.empty())
    out += (text.got.empty() ? ": expected " : ", expected ") + text.expected;
  if (!text.hint.empty()) out += ". Hint: " + text.hint;
  return out;
}

}  // namespace

Error::Error(std::string code, ErrorText text, int exit_code)
    : std::runtime_error(format_error(text)),
      code_(std::move(code)),
      text_(std::move(text)),
      exit_code_(exit_code) {}

}  // namespace hasten
