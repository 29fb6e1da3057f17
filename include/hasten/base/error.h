// File: hasten/base/error.h
// Every error hasten throws on purpose: one hierarchy, each with a stable code, a text that says
// what was wrong, what was got, what was expected and a hint, and the exit code a command should
// end with.
//
//   throw ConfigError("config.unknown-key",
//                     {.what = "unknown argument --lerning_rate", .hint = "did you mean
//                     --learning_rate?"});
//
//   try { trainer.train(); }
//   catch (const hasten::Error& error) { std::cerr << error.what() << '\n'; return
//   error.exit_code(); }
//
// Errors of LibTorch itself (c10::Error) pass through untouched, save those that hasten can explain
// better. Codes are listed with an explanation in docs/errors.md; they do not change once released.
// Thread rule: errors are values; safe everywhere.
#pragma once

#include <stdexcept>
#include <string>

namespace hasten {

// The parts of a message. Empty parts are left out of the text.
struct ErrorText {
  std::string what;      // what is wrong, and where (file, key, tensor, row)
  std::string got;       // what was found
  std::string expected;  // what would have been right
  std::string hint;      // what to do about it
};

class Error : public std::runtime_error {
 public:
  Error(std::string code, ErrorText text, int exit_code);

  // A stable identifier such as "config.unknown-key".
  const std::string& code() const noexcept { return code_; }
  const ErrorText& text() const noexcept { return text_; }
  const std::string& hint() const noexcept { return text_.hint; }
  // What a command that ends with this error returns to the shell.
  int exit_code() const noexcept { return exit_code_; }

 private:
  std::string code_;
  ErrorText text_;
  int exit_code_;
};

// A wrong call of the library: the program, not its input, has to change. Exit code 2.
struct UsageError : Error {
  UsageError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 2) {}
};
// A wrong, unknown or contradicting option, from a flag, a file or a struct. Exit code 2.
struct ConfigError : Error {
  ConfigError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 2) {}
};
// Data, weights, vocabularies and other files whose content is wrong. Exit code 3.
struct DataError : Error {
  DataError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 3) {}
};
// The operating system refused: missing file, no permission, disk full. Exit code 4.
struct IoError : Error {
  IoError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 4) {}
};
// Memory ran out. Exit code 5.
struct MemoryError : Error {
  MemoryError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 5) {}
};
// Training went wrong in its numbers (a loss that is not finite, where asked to stop). Exit code 6.
struct DivergedError : Error {
  DivergedError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 6) {}
};

}  // namespace hasten
