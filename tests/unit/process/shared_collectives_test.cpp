// Collectives in memory that several processes share, each a fork of this one.
#include "process/shared/shared_collectives.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/process/group.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace process_shared_collectives_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace std::chrono_literals;

namespace {

Group form_group(const GroupOptions& options = {}) { return Group::form(this_worker(), options); }

RankOptions rank_in(const Group& group) {
  return {.rank = group.rank(), .size = group.size(), .limit = 20s};
}

c10::intrusive_ptr<c10d::Store> store_of(const Group& group) {
  return c10::make_intrusive<c10d::PrefixStore>("shared_collectives_test",
                                                group.native()->getStore());
}

void sum(SharedCollectives& shared, const at::Tensor& tensor, double factor = 1.0,
         std::chrono::milliseconds limit = 20s) {
  shared.run(shared.reserve_ticket(), limit, [&] { shared.sum(tensor, factor); });
}

// The values of a rank, which are the same in every process.
at::Tensor rank_values(std::int64_t rank, std::int64_t count, at::ScalarType type) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(100 + rank);
  if (at::isFloatingType(type)) return at::randn({count}, generator, at::kFloat).to(type);
  return at::randint(0, 20, {count}, generator, at::kLong).to(type);
}

// The sum of `ranks` ranks from `first` on, along their tree: the sum of the first half, which is
// the larger one, plus the sum of the second half.
at::Tensor expected_tree_sum(std::int64_t first, std::int64_t ranks, std::int64_t count,
                             at::ScalarType type) {
  const bool narrow = type == at::kHalf || type == at::kBFloat16;
  if (ranks == 1) return rank_values(first, count, type).to(narrow ? at::kFloat : type);
  const std::int64_t half = (ranks + 1) / 2;
  return expected_tree_sum(first, half, count, type) +
         expected_tree_sum(first + half, ranks - half, count, type);
}

// The sum over all ranks; half and bfloat16 are summed in float.
at::Tensor expected_sum(std::int64_t ranks, std::int64_t count, at::ScalarType type) {
  return expected_tree_sum(0, ranks, count, type).to(type);
}

void fork(int processes, const std::function<void()>& body) {
  notebook_launcher(body, {.num_processes = processes, .use_cpu = true});
}

}  // namespace

TEST_CASE("shared collectives: every type and size gives the bits of a tree of the ranks") {
  for (const int ranks : {2, 3, 4, 7}) {
    fork(ranks, [] {
      const Group group = form_group();
      const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
      require(shared != nullptr, "this machine has shared memory");
      for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                              at::kChar, at::kInt, at::kLong}) {
        for (const std::int64_t count : {0, 1, 2, 4097, 16384, 300001, 1048576, 1572865}) {
          const at::Tensor own = rank_values(group.rank(), count, type);
          require(SharedCollectives::supports(own), "takes it");
          sum(*shared, own);
          require(at::equal(own, expected_sum(group.size(), count, type)),
                  str(count, " of ", c10::toString(type), " on rank ", group.rank()));
        }
      }
    });
  }
}

TEST_CASE("shared collectives: tensors with gaps work, and unsupported ones are left out") {
  fork(2, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    const at::Tensor all = rank_values(group.rank(), 60000, at::kFloat).view({300, 200});
    const at::Tensor before = all.clone();
    sum(*shared, all.t().narrow(0, 50, 100));
    const at::Tensor expected = expected_sum(2, 60000, at::kFloat).view({300, 200});
    require(at::equal(all.narrow(1, 50, 100), expected.narrow(1, 50, 100)), "the sum");
    require(at::equal(all.narrow(1, 0, 50), before.narrow(1, 0, 50)), "the rest");
    require(!SharedCollectives::supports(at::zeros({2}, at::kComplexFloat)), "complex");
    require(!SharedCollectives::supports(at::zeros({2}, at::kBool)), "bool");
    require(!SharedCollectives::supports(at::zeros({2, 2}).to_sparse()), "sparse");
  });
}

TEST_CASE("shared collectives: a factor of each rank is rounded as in a product before the sum") {
  fork(3, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    const auto factor = [](std::int64_t rank) { return 0.3 + static_cast<double>(rank); };
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const std::int64_t count : {5, 700001}) {
        const at::Tensor own = rank_values(group.rank(), count, type);
        sum(*shared, own, factor(group.rank()));
        const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
        at::Tensor expected = at::zeros({count}, wide);
        for (std::int64_t rank = 0; rank < 3; ++rank)
          expected += (rank_values(rank, count, type).to(wide) * factor(rank)).to(type);
        require(at::equal(own, expected.to(type)), str(count, " of ", c10::toString(type)));
      }
    }
  });
}

namespace {

at::Tensor copy_to_shared_memory(SharedCollectives& shared, const at::Tensor& values) {
  at::Tensor there = shared.empty(values.numel(), values.options());
  return there.copy_(values);
}

// The number of bytes of shared memory that use pages.
std::int64_t shared_bytes() {
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat state {};
    if (target.find("memfd:hasten") == std::string::npos || stat(entry.path().c_str(), &state) != 0)
      continue;
    bytes = std::max<std::int64_t>(bytes, state.st_blocks * 512);
  }
  return bytes;
}

}  // namespace

TEST_CASE("shared collectives: tensors in shared memory are added in place, with the same bits") {
  for (const int ranks : {2, 3}) {
    fork(ranks, [] {
      const Group group = form_group();
      const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
      for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
        for (const std::int64_t count : {1, 300001, 1048579}) {
          const at::Tensor own =
              copy_to_shared_memory(*shared, rank_values(group.rank(), count, type));
          const void* const before = own.const_data_ptr();
          sum(*shared, own);
          require(own.const_data_ptr() == before, "it stays");
          require(at::equal(own, expected_sum(group.size(), count, type)),
                  str(count, " of ", c10::toString(type), " on rank ", group.rank()));
        }
      }
    });
  }
}

TEST_CASE("shared collectives: factors and parts of tensors work in shared memory") {
  fork(3, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    constexpr std::int64_t kCount = 700001;
    const at::Tensor mine = rank_values(group.rank(), kCount, at::kFloat);
    const at::Tensor all = expected_sum(3, kCount, at::kFloat);
    at::Tensor own = copy_to_shared_memory(*shared, mine);
    sum(*shared, own, 0.3 + static_cast<double>(group.rank()));
    at::Tensor scaled = at::zeros({kCount});
    for (std::int64_t rank = 0; rank < 3; ++rank)
      scaled += rank_values(rank, kCount, at::kFloat) * (0.3 + static_cast<double>(rank));
    require(at::equal(own, scaled), "the factor");

    own.copy_(mine);
    sum(*shared, own.narrow(0, 0, 200000));
    require(at::equal(own.narrow(0, 0, 200000), all.narrow(0, 0, 200000)), "the part");
    require(at::equal(own.narrow(0, 200000, 500001), mine.narrow(0, 200000, 500001)), "the rest");
    own.copy_(mine);
    sum(*shared, own);
    require(at::equal(own, all), "all");

    const at::Tensor elsewhere = group.rank() == 1 ? mine.clone() : own.copy_(mine);
    sum(*shared, elsewhere);
    require(at::equal(elsewhere, all), "one elsewhere");

    for (int round = 0; round < 3; ++round) {
      own = at::Tensor();
      own = copy_to_shared_memory(*shared, mine);
      sum(*shared, own);
      require(at::equal(own, all), str("after freeing, round ", round));
    }
  });
}

TEST_CASE("shared collectives: shared memory is freed with its tensor, and stays in a fork") {
  fork(2, [] {
    const Group group = form_group();
    auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    const std::int64_t before = shared_bytes(), megabyte = std::int64_t{1} << 20;
    group.barrier();
    at::Tensor kept = shared->empty(4 * megabyte, at::kFloat).fill_(7);
    group.barrier();
    require(shared_bytes() >= before + 32 * megabyte, "of both ranks");
    for (int i = 0; i < 20; ++i) shared->empty(8 * megabyte, at::kByte).fill_(1);
    group.barrier();
    require(shared_bytes() < before + 40 * megabyte, "freed memory is still used");
    const pid_t child = ::fork();
    if (child == 0) {
      kept = at::Tensor();  // like a program that ends by exit()
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    shared.reset();
    require(kept.eq(7).all().item<bool>(), "neither a fork nor the group takes it along");
    group.barrier();
  });
}

TEST_CASE("shared collectives: if files must be small, large tensors use ordinary memory") {
  fork(2, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    if (group.rank() == 1) {
      const rlimit small{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    const at::Tensor own =
        copy_to_shared_memory(*shared, rank_values(group.rank(), 300001, at::kFloat));
    sum(*shared, own);
    require(at::equal(own, expected_sum(2, 300001, at::kFloat)), "the sum");
  });
}

TEST_CASE("shared collectives: if no file is possible, a group forms without them") {
  fork(2, [] {
    const rlimit small{.rlim_cur = 1 << 10, .rlim_max = 1 << 10};
    setrlimit(RLIMIT_FSIZE, &small);
    const Group group = form_group();
    require(SharedCollectives::create(*store_of(group), rank_in(group)) == nullptr, "no memory");
    require(group.reduce(at::ones({3})).eq(2).all().item<bool>(), "by messages");
  });
}

TEST_CASE("shared collectives: gather and broadcast work for any type and size") {
  fork(3, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    for (const auto type : {at::kFloat, at::kBFloat16, at::kLong, at::kByte}) {
      for (const std::int64_t count : {0, 1, 1001, 1500001}) {
        const at::Tensor own = rank_values(group.rank(), count, type);
        const at::Tensor all = at::empty({3 * count}, type);
        shared->run(shared->reserve_ticket(), 20s, [&] { shared->gather(own, all); });
        for (std::int64_t rank = 0; rank < 3; ++rank)
          require(at::equal(all.narrow(0, rank * count, count), rank_values(rank, count, type)),
                  str("gathered ", count, " of ", c10::toString(type)));
        shared->run(shared->reserve_ticket(), 20s, [&] { shared->broadcast(own, 1); });
        require(at::equal(own, rank_values(1, count, type)), "broadcast");
      }
    }
    const at::Tensor wide = at::zeros({6, 4}), own = at::full({2, 2}, 1.0 + group.rank());
    shared->run(shared->reserve_ticket(), 20s,
                [&] { shared->gather(own.t(), wide.narrow(1, 1, 2)); });
    require(wide.sum().item<double>() == 24 && wide.select(1, 0).eq(0).all().item<bool>(), "gaps");
  });
}

TEST_CASE("shared collectives: every rank names different tensors, then and later") {
  fork(3, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    const auto run = [&](const at::Tensor& tensor) { sum(*shared, tensor); };
    run(at::ones({5}));
    const at::Tensor other = group.rank() == 1 ? at::ones({600000}) : at::ones({7});
    require(code_of([&] { run(other); }) == "process.calls-differ", "sizes");
    require(code_of([&] { run(at::ones({5})); }) == "process.calls-differ", "and later");
  });
  fork(2, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    const at::Tensor other = at::ones({5}, group.rank() == 1 ? at::kInt : at::kFloat);
    require(code_of([&] { sum(*shared, other); }) == "process.calls-differ", "types");
  });
  fork(2, [] {  // the same number of bytes, but different types
    const Group group = form_group();
    const bool first = group.rank() == 0;
    const at::Tensor own = first ? at::ones({4}) : at::ones({2}, at::kLong);
    require(code_of([&] { group.gather(own); }) == "process.calls-differ", "gathered");
  });
  fork(2, [] {
    const Group group = form_group();
    require(
        code_of([&] { group.broadcast(at::ones({4}), group.rank()); }) == "process.calls-differ",
        "roots");
  });
}

TEST_CASE("shared collectives: a rank that left is reported at once, a late one at the limit") {
  fork(2, [] {
    const Group group = form_group();
    auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    if (group.rank() == 1) {
      shared.reset();
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    std::string message;
    const auto after_the_end = [&] {
      try {
        sum(*shared, at::ones({5}));
      } catch (const Error& error) {
        message = error.what();
        throw;
      }
    };
    require(code_of(after_the_end) == "process.rank-missing", "the left rank is not reported");
    require(message.find("on rank 0: rank 1 has ended or left the group without reaching it. "
                         "Hint: see what rank 1 has printed") != std::string::npos,
            "message");
    require(std::chrono::steady_clock::now() - begin < 5s, "at once");
  });
  fork(2, [] {
    const Group group = form_group();
    const auto shared = SharedCollectives::create(*store_of(group), rank_in(group));
    if (group.rank() == 0) {
      const auto late = [&] { sum(*shared, at::ones({5}), 1.0, 300ms); };
      require(code_of(late) == "process.rank-missing", "the late rank is not reported");
    }
    group.barrier();
    if (group.rank() == 1) {
      const auto begin = std::chrono::steady_clock::now();
      sum(*shared, at::ones({5}));  // rank 0 had added its values
      require(code_of([&] { sum(*shared, at::ones({5})); }) == "process.rank-missing",
              "the second call does not fail");
      require(std::chrono::steady_clock::now() - begin < 5s,
              "the call waits for a rank that has thrown");
    }
  });
}

TEST_CASE(
    "shared collectives: the rank that fails first is reported, not the rank that waits for it") {
  int blamed = -1;
  try {
    fork(2, [] {
      struct Slow {
        ~Slow() {
          if (this_worker().rank == 1) std::this_thread::sleep_for(50ms);
        }
      } const ends_after_the_group;
      const Group group = form_group();
      if (group.rank() == 1) throw DataError("test.cause", {.what = "the cause"});
      group.reduce(at::ones({5}));
    });
  } catch (const RankError& error) {
    blamed = static_cast<int>(error.rank);
  }
  CHECK(blamed == 1);
}

TEST_CASE("shared collectives: if one rank cannot share memory, none of them does") {
  fork(3, [] {
    const Group group = form_group();
    const auto store = store_of(group);
    require(shared_memory(*store, "like", rank_in(group), 4096, str(group.rank() == 2)) == nullptr,
            "other ranks");
    require(shared_memory(*store, "same", rank_in(group), 4096, "all") != nullptr, "the same");
    if (group.rank() == 1) {  // its limit allows no further open file
      const rlimit few{.rlim_cur = 256, .rlim_max = 256};
      setrlimit(RLIMIT_NOFILE, &few);
      while (dup(STDERR_FILENO) >= 0) {
      }
    }
    require(shared_memory(*store, "files", rank_in(group), 4096) == nullptr, "no file");
  });
}

TEST_CASE("shared collectives: a group works with and without them, with many calls at once") {
  fork(3, [] {
    const Group in_memory = form_group(), by_messages = form_group({.shared_memory = false});
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<at::Tensor>> sums;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (const std::int64_t count : {3, 400000, 70000, 1}) {
        sums.push_back({rank_values(in_memory.rank(), count, at::kFloat)});
        works.push_back(in_memory.native()->allreduce(sums.back()));
        if (count == 70000) {
          const at::Tensor from = at::full({4}, in_memory.rank());
          require(in_memory.broadcast(from, 2).eq(2).all().item<bool>(), "a message between");
        }
      }
      in_memory.barrier();
      for (std::size_t i = 0; i < works.size(); ++i) {
        works[i]->wait();
        std::vector<at::Tensor> again = {
            rank_values(by_messages.rank(), sums[i][0].numel(), at::kFloat)};
        by_messages.native()->allreduce(again)->wait();
        require(at::allclose(sums[i][0], again[0], 1e-6, 1e-6), "the same sum");
      }
    }
    const at::Tensor mean =
        in_memory.reduce(at::full({3}, 1.0 + in_memory.rank()), Reduction::mean);
    require(mean.eq(2).all().item<bool>(), "a mean");
  });
}

}  // namespace process_shared_collectives_test
