// File: options/size.h (internal)
// Parses a number of bytes that a user writes with a unit, for every option that is a size.
//
//   config::parse_size("--memory", "16GiB");          // 16 * 1024^3
//   config::parse_size("--max_shard_size", "5GB");    // 5 * 1000^3, as in Hugging Face
//
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <string>

namespace hasten::config {

// The text is a decimal number, which may have a fraction or an exponent, and a unit in any letter
// case. Spaces may separate them. No unit and B mean bytes; kB, MB, GB and TB are powers of 1000;
// KiB, MiB, GiB and TiB, and their short forms K, M, G and T, are powers of 1024. A fraction of a
// byte is cut off. `option` is for messages. Throws ConfigError "config.bad-value" for any other
// text, for less than one byte, and for a size that 63 bits cannot hold.
std::int64_t parse_size(const std::string& option, const std::string& text);

}  // namespace hasten::config
