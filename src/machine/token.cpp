#include "machine/token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr const char* kCreateCommand = "openssl rand -hex 32";

[[noreturn]] void throw_invalid_token(std::string_view origin, std::string got,
                                      std::string expected) {
  throw ConfigError("config.token", {.what = str("the job's token, from ", origin),
                                     .got = std::move(got),
                                     .expected = std::move(expected),
                                     .hint = str("create one with ", kCreateCommand)});
}

std::string octal(mode_t mode) {
  std::string digits;
  for (int shift = 6; shift >= 0; shift -= 3)
    digits += static_cast<char>('0' + (mode >> shift) % 8);
  return digits;
}

void check_permissions(const std::filesystem::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return;  // reading the file reports why
  const bool is_open_to_others = (status.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || !is_open_to_others) return;
  throw ConfigError("config.token",
                    {.what = str("the job's token, from ", file.string()),
                     .got = str("a file that other users can open, mode ", octal(status.st_mode)),
                     .expected = "a file that only you can read and write, mode 600",
                     .hint = "run chmod 600 " + file.string() +
                             ", and create a new token if others may have read this one"});
}

}  // namespace

void check_token(std::string_view token, std::string_view origin) {
  const bool printable = std::all_of(token.begin(), token.end(), [](unsigned char character) {
    return character > ' ' && character < 127;
  });
  if (token.size() < kMinTokenLength || token.size() > kMaxTokenLength || !printable) {
    throw_invalid_token(
        origin,
        printable ? str(token.size(), " characters")
                  : "spaces or characters that cannot be printed",
        str(kMinTokenLength, " to ", kMaxTokenLength, " printable characters without spaces"));
  }
  const std::size_t distinct = std::set<char>(token.begin(), token.end()).size();
  if (distinct < kMinDistinctCharacters) {
    throw_invalid_token(
        origin,
        distinct == 1 ? "a single repeated character"
                      : str("only ", distinct, " different characters"),
        str("random characters, at least ", kMinDistinctCharacters, " different ones"));
  }
}

std::string read_token_file(const std::filesystem::path& file) {
  check_permissions(file);
  const std::string text = read_file(file);
  std::string token = text.substr(0, text.find_first_of("\r\n"));
  check_token(token, file.string());
  return token;
}

}  // namespace hasten
