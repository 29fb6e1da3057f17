#include "hasten/config/token.h"

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

void check_token(std::string_view token, std::string_view origin) {
  const bool printable = std::all_of(token.begin(), token.end(), [](unsigned char letter) {
    return letter > ' ' && letter < 127;
  });
  if (token.size() >= kShortestToken && token.size() <= kLongestToken && printable) return;
  throw ConfigError("config.token", {.what = str("the job's token, from ", origin),
                                     .got = printable ? str(token.size(), " letters")
                                                      : "spaces or letters that cannot be printed",
                                     .expected = str(kShortestToken, " to ", kLongestToken,
                                                     " printable letters without spaces"),
                                     .hint = "openssl rand -hex 32"});
}

}  // namespace hasten
