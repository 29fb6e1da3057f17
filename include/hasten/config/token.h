// File: hasten/config/token.h
// The job's token: what every process of a job knows and nobody else. It comes by a file or by the
// environment, never by a command line, where other users would see it.
//
//   check_token(text, "HASTEN_JOB_TOKEN");
//   const std::string token = read_token_file("token");
//
// Needs no torch. Throws ConfigError "config.token", IoError "io.open". Thread rule: any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace hasten {

inline constexpr const char* kTokenVariable = "HASTEN_JOB_TOKEN";
inline constexpr std::size_t kShortestToken = 16;  // letters
inline constexpr std::size_t kLongestToken = 1024;
// One of 16 random hexadecimal digits has fewer once in 30,000 times; a word that is repeated has
// fewer often.
inline constexpr std::size_t kFewestDistinctLetters = 6;

void check_token(std::string_view token, std::string_view origin);

// The first line of the file, checked. As ssh does with keys, it refuses a file of this user's that
// others can read or write; a file of another user's was put there on purpose, such as a secret
// that Kubernetes mounts.
std::string read_token_file(const std::filesystem::path& file);

}  // namespace hasten
