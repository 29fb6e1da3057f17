// File: unit/options/support.h
// Helpers for tests of options: a command line as a list of arguments, a temporary file, and the
// error that a call throws, as a value.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/options/train_options.h"

namespace hasten::test {

using Texts = std::vector<std::string>;

inline TrainConfiguration parse(const Texts& arguments,
                                const config::Environment& environment = {}) {
  return parse_train(arguments, environment);
}

// Parses a valid command line with additional arguments.
inline TrainConfiguration parse_with_model(Texts arguments,
                                           const config::Environment& environment = {}) {
  arguments.insert(arguments.begin(), {"--model", "bert-base", "--data", "dummy"});
  return parse(arguments, environment);
}

struct CaughtError {
  std::string code, text;
  int exit_code = 0;
};

template <class Call>
CaughtError error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what(), error.exit_code()};
  }
  return {"no error", "", 0};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A file in a new folder, which is deleted with the object. `name` may contain folders.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& content) {
    std::string folder = (std::filesystem::temp_directory_path() / "hasten-config-XXXXXX").string();
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/" + name;
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

// Returns the value of an option after parse_train.
inline const config::ResolvedValue& value_in(const TrainConfiguration& run,
                                             const std::string& name) {
  for (const config::ResolvedValue& value : run.values) {
    if (value.name == name) return value;
  }
  FAIL("no option " << name);
  return run.values.front();
}
inline std::string origin_in(const TrainConfiguration& run, const std::string& name) {
  return config::to_text(value_in(run, name).origin);
}

}  // namespace hasten::test
