// The records of collective calls.
#include "process/watch/call_log.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace process_call_test {

using namespace hasten;

TEST_CASE("call: its text has the collective and the tensors") {
  CHECK(Call::of("barrier", {}).text() == "barrier");
  CHECK(Call::of("all_gather", {at::ones({4, 512})}).text() == "all_gather of 4 x 512 float");
  CHECK(Call::reducing("all_reduce", {at::scalar_tensor(1, at::kLong)}, "max").text() ==
        "all_reduce (max) of one long");
  CHECK(Call::rooted("broadcast", {at::ones({3})}, 1).text() == "broadcast of 3 float, root 1");
  CHECK(Call::of("x", {at::ones({1, 1, 1, 1, 1, 1, 2})}).text() ==
        "x of 1 x 1 x 1 x 1 x 1 x 1 x ... float");
}

TEST_CASE("call: different calls have different fingerprints") {
  const auto fingerprint_of = [](at::IntArrayRef sizes, at::ScalarType type) {
    return Call::of("all_gather", {at::ones(sizes, type)}).fingerprint;
  };
  CHECK(fingerprint_of({2, 3}, at::kFloat) == fingerprint_of({2, 3}, at::kFloat));
  CHECK(fingerprint_of({2, 3}, at::kFloat) != fingerprint_of({3, 2}, at::kFloat));
  CHECK(fingerprint_of({6}, at::kFloat) != fingerprint_of({2, 3}, at::kFloat));
  CHECK(fingerprint_of({2, 3}, at::kFloat) != fingerprint_of({2, 3}, at::kInt));
  CHECK(Call::of("a", {}).fingerprint != Call::of("b", {}).fingerprint);
  CHECK(Call::rooted("a", {}, 0).fingerprint != Call::rooted("a", {}, 1).fingerprint);
  CHECK(Call::reducing("a", {}, "").fingerprint != Call::reducing("a", {}, "max").fingerprint);
  CHECK(Call::of("a", {at::ones({2}), at::ones({3})}).fingerprint !=
        Call::of("a", {at::ones({2}), at::ones({4})}).fingerprint);
  // Purposes are known to one rank only.
  Call named = Call::of("a", {});
  named.purpose = "b";
  CHECK(named.fingerprint == Call::of("a", {}).fingerprint);
}

TEST_CASE("call: ordinal numbers have their endings") {
  CHECK(ordinal(1) == "1st");
  CHECK(ordinal(2) == "2nd");
  CHECK(ordinal(3) == "3rd");
  CHECK(ordinal(4) == "4th");
  CHECK(ordinal(11) == "11th");
  CHECK(ordinal(112) == "112th");
  CHECK(ordinal(121) == "121st");
}

TEST_CASE("call log: running calls are kept, however many others end meanwhile") {
  CallLog log;
  CHECK_FALSE(log.oldest_call_start());
  const auto first = log.begin(Call::of("a", {}));
  for (int i = 0; i < 100; ++i) log.end(log.begin(Call::of("b", {})));
  CHECK(log.snapshot().entries.front().number == first);
  CHECK(log.oldest_call_start() == log.snapshot().entries.front().began);
  log.end(first);
  CHECK_FALSE(log.oldest_call_start());
  for (int i = 0; i < 100; ++i) log.end(log.begin(Call::of("b", {})));
  CHECK(log.snapshot().entries.size() <= 16);
  CHECK(log.snapshot().begun == 201);
  CHECK(log.snapshot().entries.back().number == 201);
}

}  // namespace process_call_test
