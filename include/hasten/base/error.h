// File: hasten/base/error.h
// The exceptions of hasten: one class hierarchy in which each error has a stable code, a text in
// four parts, and the exit code that a command should end with.
//
//   throw ConfigError("config.unknown-key", {.what = "unknown argument --lerning_rate",
//                                            .hint = "did you mean --learning_rate?"});
//
//   try {
//     trainer.train();
//   } catch (const hasten::Error& error) {
//     std::cerr << error.what() << '\n';
//     return error.exit_code();
//   }
//
// what() reads "what: got X, expected Y. Hint: ...". LibTorch's own errors (c10::Error) pass
// through unchanged, except those that hasten can explain better. docs/errors.md explains every
// code; a code keeps its meaning once released. Thread rule: errors are values, safe on any thread.
#pragma once

#include <stdexcept>
#include <string>

#include "hasten/base/detail/export.h"

namespace hasten {

// The parts of a message. Empty parts are omitted.
struct ErrorText {
  std::string what = {};      // What is wrong, and where (file, key, tensor, row).
  std::string got = {};       // The value that was found.
  std::string expected = {};  // The values that are allowed.
  std::string hint = {};      // What to do about it.
};

class HASTEN_API Error : public std::runtime_error {
 public:
  Error(std::string code, ErrorText text, int exit_code);

  // The stable code, such as "config.unknown-key".
  const std::string& code() const noexcept { return code_; }
  const ErrorText& text() const noexcept { return text_; }
  const std::string& hint() const noexcept { return text_.hint; }
  // The exit code for a command that ends with this error.
  int exit_code() const noexcept { return exit_code_; }

 private:
  std::string code_;
  ErrorText text_;
  int exit_code_;
};

// A wrong call of the library: the calling program has to change, not its input. Exit code 2.
struct HASTEN_API UsageError : Error {
  UsageError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 2) {}
};
// An unknown, invalid or contradictory option, from a flag, a file, a variable or a struct. Exit
// code 2.
struct HASTEN_API ConfigError : Error {
  ConfigError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 2) {}
};
// Wrong content of data, weights, vocabularies or other files. Exit code 3.
struct HASTEN_API DataError : Error {
  DataError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 3) {}
};
// A request that the operating system refused: missing file, no permission, full disk. Exit code 4.
struct HASTEN_API IoError : Error {
  IoError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 4) {}
};
// Not enough memory. Exit code 5.
struct HASTEN_API MemoryError : Error {
  MemoryError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 5) {}
};
// Training diverged, such as a loss that is not finite when stop_on_nonfinite_loss is set. Exit
// code 6.
struct HASTEN_API DivergedError : Error {
  DivergedError(std::string code, ErrorText text) : Error(std::move(code), std::move(text), 6) {}
};

}  // namespace hasten
