#include "commands/weights_options.h"

#include <doctest/doctest.h>

#include "unit/code_of.h"

namespace commands_weights_options_test {

using namespace hasten;

TEST_CASE("hasten convert and merge-weights: a shard has a size with a unit") {
  CHECK(parse_convert({"a.bin", "b", "--max_shard_size", "5GB"}).max_shard_size == 5'000'000'000);
  CHECK(parse_merge_weights({"a", "b", "--max_shard_size", "5G"}).max_shard_size == std::int64_t{5}
                                                                                        << 30);
  CHECK_FALSE(parse_convert({"a.bin", "b"}).max_shard_size.has_value());
  CHECK(code_of([] {
          parse_convert({"a.bin", "b", "--max_shard_size", "0x10"});
        }) == "config.bad-value");
  CHECK(code_of([] {
          parse_merge_weights({"a", "b", "--max_shard_size", "-5GB"});
        }) == "config.bad-value");
}

}  // namespace commands_weights_options_test
