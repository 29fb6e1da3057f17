#include <doctest/doctest.h>
#include <torch/torch.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/backend/gloo.h"

namespace process_gloo_transport_test {

namespace {

using namespace hasten;
using namespace std::chrono_literals;
using Backend = c10::intrusive_ptr<c10d::Backend>;

constexpr int kSize = 3;
enum class Transport { local, encrypted, plain };

// Runs each rank in a thread and returns the text of its exception, or an empty text if there was
// none.
template <class Run>
std::vector<std::string> run_ranks(Transport transport, const Run& run) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> thrown(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(rank,
            gloo_backend(
                store, {.rank = rank, .size = kSize, .limit = 20s},
                // Two addresses count as two machines.
                {.address = transport == Transport::local ? "127.0.0.1" : str("127.0.0.", rank + 1),
                 .token = "0123456789abcdef0123456789abcdef",
                 .encrypt = transport == Transport::encrypted,
                 .timeout = 20s,
                 .shared_memory = false}));
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

at::Tensor rank_values(int rank, std::int64_t count) {
  return at::arange(count, at::kFloat) + 1000 * rank;
}

std::vector<at::Tensor> all_values(std::int64_t count) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < kSize; ++rank) all.push_back(rank_values(rank, count));
  return all;
}

// Runs every collective of c10d's Gloo on `count` numbers. Throws in a rank with a wrong result.
void check_collectives(int rank, c10d::Backend& gloo, std::int64_t count) {
  const auto all = all_values(count);
  const auto equal = [](const at::Tensor& got, const at::Tensor& expected, const char* what) {
    if (!at::equal(got, expected)) throw std::runtime_error(str("wrong: ", what));
  };
  std::vector<at::Tensor> own = {rank_values(rank, count)};
  gloo.allreduce(own)->wait();
  equal(own[0], all[0] + all[1] + all[2], "allreduce");
  own = {rank_values(rank, count)};
  gloo.allreduce(own, {.reduceOp = c10d::ReduceOp::MAX})->wait();
  equal(own[0], all[2], "allreduce of the greatest");
  own = {rank_values(rank, count)};
  gloo.broadcast(own, {.rootRank = 1})->wait();
  equal(own[0], all[1], "broadcast");
  own = {rank_values(rank, count)};
  gloo.reduce(own, {.rootRank = 2})->wait();
  if (rank == 2) equal(own[0], all[0] + all[1] + all[2], "reduce");

  std::vector<std::vector<at::Tensor>> lists = {all_values(count)};
  for (at::Tensor& each : lists[0]) each = at::empty_like(each);
  own = {rank_values(rank, count)};
  gloo.allgather(lists, own)->wait();
  for (int each = 0; each < kSize; ++each)
    equal(lists[0][static_cast<std::size_t>(each)], all[static_cast<std::size_t>(each)],
          "allgather");
  std::vector<std::vector<at::Tensor>> none;
  gloo.gather(rank == 0 ? lists : none, own, {.rootRank = 0})->wait();
  std::vector<at::Tensor> part = {at::empty({count})};
  auto parts = std::vector<std::vector<at::Tensor>>{all_values(count)};
  gloo.scatter(part, rank == 1 ? parts : none, {.rootRank = 1})->wait();
  equal(part[0], all[static_cast<std::size_t>(rank)], "scatter");

  at::Tensor sent = at::cat(all_values(count)) + 10000 * rank, got = at::empty_like(sent);
  std::vector<std::int64_t> splits;
  gloo.alltoall_base(got, sent, splits, splits)->wait();
  std::vector<at::Tensor> expected;
  for (int each = 0; each < kSize; ++each)
    expected.push_back(rank_values(rank, count) + 10000 * each);
  equal(got, at::cat(expected), "alltoall");
  gloo.barrier()->wait();
}

// Rank 0 receives messages from any rank, in the order of their arrival.
void check_point_to_point(int rank, c10d::Backend& gloo) {
  std::vector<at::Tensor> one = {rank_values(rank, 5)};
  if (rank > 0) {
    gloo.send(one, 0, 3)->wait();
    gloo.send(one, 0, 4)->wait();
    return;
  }
  double sum = 0;
  for (const int tag : {3, 3, 4, 4}) {
    std::vector<at::Tensor> room = {at::empty({5})};
    gloo.recvAnysource(room, tag)->wait();
    sum += room[0][0].item<double>();
  }
  if (sum != 2 * (1000 + 2000)) throw std::runtime_error(str("recvAnysource: ", sum));
}

}  // namespace

TEST_CASE("gloo transport: each collective works locally, encrypted and in plain text") {
  for (const Transport transport : {Transport::local, Transport::encrypted, Transport::plain}) {
    const auto thrown = run_ranks(transport, [](int rank, const Backend& gloo) {
      for (const std::int64_t count : {1, 1000, 300000}) check_collectives(rank, *gloo, count);
      for (int i = 0; i < 20; ++i) check_point_to_point(rank, *gloo);
    });
    for (const std::string& each : thrown) CHECK(each == "");
  }
}

TEST_CASE("gloo transport: a rank that ends fails the waiting operations and is named") {
  const auto began = std::chrono::steady_clock::now();
  const auto thrown = run_ranks(Transport::encrypted, [](int rank, const Backend& gloo) {
    if (rank == 2) return;
    std::vector<at::Tensor> own = {at::ones({10})};
    gloo->allreduce(own)->wait();
  });
  CHECK((thrown[0] + thrown[1]).find("the connection with rank") != std::string::npos);
  CHECK(thrown[2] == "");
  CHECK(std::chrono::steady_clock::now() - began < 15s);  // the limit is 20 s
}

TEST_CASE("gloo transport: tensors of different sizes are an error in each rank, not a hang") {
  const auto thrown = run_ranks(Transport::local, [](int rank, const Backend& gloo) {
    std::vector<at::Tensor> own = {at::ones({rank == 1 ? 20 : 10})};
    gloo->broadcast(own, {.rootRank = 1, .rootTensor = 0, .timeout = 5s})->wait();
    gloo->barrier({.timeout = 5s})->wait();
  });
  CHECK((thrown[0] + thrown[2]).find("got 80 bytes, expected at most 40") != std::string::npos);
}

TEST_CASE("gloo transport: a rank that does not connect in time is an error") {
  const auto thrown = run_ranks(Transport::local, [](int rank, const Backend& gloo) {
    if (rank == 0) {
      std::this_thread::sleep_for(1500ms);
      return;
    }
    gloo->barrier({.timeout = 300ms})->wait();
  });
  CHECK(thrown[1].find("completion within 300 ms") + thrown[2].find("completion within 300 ms") !=
        2 * std::string::npos);
}

}  // namespace process_gloo_transport_test
