// File: machine/token.h (internal)
// The job's token, a secret that only the processes of one job know. It is passed in a file or in
// the environment, never on a command line, which other users could see.
//
//   check_token(text, "HASTEN_JOB_TOKEN");
//   const std::string token = read_token_file("token");
//
// Needs no torch. Throws ConfigError "config.token", IoError "io.*". Thread rule: any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/internal_api.h"

namespace hasten {

inline constexpr const char* kTokenVariable = "HASTEN_JOB_TOKEN";
inline constexpr std::size_t kMinTokenLength = 16;  // Characters.
inline constexpr std::size_t kMaxTokenLength = 1024;
// A token of 16 random hexadecimal digits has fewer distinct characters only once in 30,000 times.
// A repeated word often has fewer.
inline constexpr std::size_t kMinDistinctCharacters = 6;

// Throws if the token is too short, too long or too regular, or has characters that cannot be
// printed. `origin` names its source in messages.
HASTEN_INTERNAL_API void check_token(std::string_view token, std::string_view origin);

// Returns the first line of the file, checked. Like ssh, it refuses a file of this user that others
// can access. It accepts a file of another user, because that user put it there on purpose (a
// secret that Kubernetes mounts, for example).
std::string read_token_file(const std::filesystem::path& file);

}  // namespace hasten
