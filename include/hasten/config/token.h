// File: hasten/config/token.h
// The job's token: what every process of a job knows and nobody else. It comes by a file or by the
// environment, never by a command line, where other users would see it.
//
//   check_token(text, "token.txt");
//
// Needs no torch. Throws ConfigError "config.token". Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace hasten {

inline constexpr const char* kTokenVariable = "HASTEN_JOB_TOKEN";
inline constexpr std::size_t kShortestToken = 16;  // letters
inline constexpr std::size_t kLongestToken = 1024;

void check_token(std::string_view token, std::string_view origin);

}  // namespace hasten
