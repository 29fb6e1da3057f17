#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/data/loader.h"
#include "unit/code_of.h"
#include "unit/thread_shortage.h"

namespace data_loader_workers_test {

using namespace hasten;

namespace {

// The number of loader threads in this process.
int count_loader_threads() {
  int count = 0;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name == "hasten-loader";
  }
  return count;
}

// Threads set their names once they run, so that a new one is counted only after a moment. The
// system still lists a thread for a moment after join() has returned.
bool threads_reach(int count) {
  for (int tries = 0; tries < 2000 && count_loader_threads() != count; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return count_loader_threads() == count;
}

struct Log {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<std::int64_t> made{0};
};

// Each row takes a different time, so that workers finish out of order.
struct SlowDataset {
  std::int64_t rows;
  std::shared_ptr<Log> log = std::make_shared<Log>();
  std::int64_t fails_at = -1;
  std::int64_t size() const { return rows; }
  std::int64_t get(std::int64_t index) const {
    if (index == fails_at) throw std::runtime_error("row is broken");
    std::this_thread::sleep_for(std::chrono::microseconds(index * 7919 % 700));
    ++log->made;
    const std::lock_guard lock(log->mutex);
    log->threads.insert(std::this_thread::get_id());
    return index;
  }
};
struct Numbers {
  std::vector<std::int64_t> operator()(std::span<const std::int64_t> rows) const {
    return {rows.begin(), rows.end()};
  }
};

}  // namespace

TEST_CASE("loader workers: batches come in order, made by the requested number of threads") {
  SlowDataset dataset{200};
  auto log = dataset.log;
  auto loader = make_loader(dataset, {.batch_size = 4, .num_workers = 3}, Numbers{});
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::int64_t next = 0;
    for (const auto& batch : loader) {
      for (const std::int64_t row : batch) CHECK(row == next++);
    }
    CHECK(next == 200);
  }
  CHECK(log->threads.size() >= 3);
  CHECK_FALSE(log->threads.contains(std::this_thread::get_id()));
  CHECK(threads_reach(0));
}

TEST_CASE("loader workers: at most prefetch_factor batches are made ahead") {
  SlowDataset dataset{400};
  auto log = dataset.log;
  auto loader =
      make_loader(dataset, {.batch_size = 2, .num_workers = 2, .prefetch_factor = 3}, Numbers{});
  std::int64_t taken = 0;
  for ([[maybe_unused]] const auto& batch : loader) {
    ++taken;
    if (taken % 50 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(log->made <= (taken + 2 * 3) * 2);
    if (taken == 60) break;
  }
  CHECK(log->made > taken * 2);
}

TEST_CASE("loader workers: leaving a loop or destroying the loader joins the threads") {
  {
    auto loader = make_loader(SlowDataset{100'000}, {.batch_size = 2, .num_workers = 4}, Numbers{});
    CHECK(threads_reach(0));
    for ([[maybe_unused]] const auto& batch : loader) {
      CHECK(threads_reach(4));
      break;
    }
    CHECK(threads_reach(0));
    CHECK_THROWS([&] {
      for ([[maybe_unused]] const auto& batch : loader) throw std::runtime_error("out");
    }());
    CHECK(threads_reach(0));
    auto it = loader.begin();
    auto other = std::move(it);
    CHECK(threads_reach(4));
  }
  CHECK(threads_reach(0));
}

TEST_CASE("loader workers: an error is thrown in place of its batch, and names that batch") {
  for (const std::int64_t workers : {0, 1, 4}) {
    CAPTURE(workers);
    auto loader = make_loader(SlowDataset{.rows = 40, .fails_at = 21},
                              {.batch_size = 4, .num_workers = workers}, Numbers{});
    std::int64_t seen = 0;
    try {
      for ([[maybe_unused]] const auto& batch : loader) ++seen;
      FAIL("expected an error");
    } catch (const DataError& error) {
      CHECK(error.code() == "data.batch");
      CHECK(std::string(error.what()) ==
            "making batch 5 of epoch 0 (rows 20, 21, 22, 23) failed: got row is broken");
      CHECK_THROWS_WITH(std::rethrow_if_nested(error), "row is broken");
    }
    CHECK(seen == 5);
    CHECK(loader.state() == LoaderState{.seed = 42, .epoch = 0, .batch = 5, .rows = 20});
    CHECK(threads_reach(0));
  }
}

TEST_CASE("loader workers: errors of hasten keep their kind and code, memory errors pass") {
  struct FailingDataset {
    int kind;
    std::int64_t size() const { return 3; }
    std::int64_t get(std::int64_t) const {
      if (kind == 0) throw IoError("io.read", {.what = "cannot read x"});
      if (kind == 1) throw std::bad_alloc();
      TORCH_CHECK(false, "from LibTorch");
    }
  };
  const auto run = [](int kind) {
    auto loader = make_loader(FailingDataset{kind}, {.batch_size = 2, .num_workers = 1}, Numbers{});
    for ([[maybe_unused]] const auto& batch : loader) {
    }
  };
  try {
    run(0);
  } catch (const IoError& error) {
    CHECK(error.code() == "io.read");
    CHECK(std::string(error.what()) == "batch 0 of epoch 0 (rows 0, 1): cannot read x");
  }
  CHECK_THROWS_AS(run(0), IoError);
  CHECK_THROWS_AS(run(1), std::bad_alloc);
  CHECK_THROWS_WITH_AS(run(2), "making batch 0 of epoch 0 (rows 0, 1) failed: got from LibTorch",
                       DataError);
}

TEST_CASE("loader workers: a stream has one thread, ends, and throws its error in turn") {
  struct Stream {
    std::shared_ptr<Log> log;
    std::int64_t fails_at;
    std::int64_t at = 0;
    std::optional<std::int64_t> next() {
      const std::lock_guard lock(log->mutex);
      log->threads.insert(std::this_thread::get_id());
      if (at == fails_at) throw std::runtime_error("broken");
      return at < 100 ? std::optional(at++) : std::nullopt;
    }
    void rewind(std::int64_t) { at = 0; }
  };
  auto log = std::make_shared<Log>();
  auto loader = make_loader(Stream{log, -1}, {.batch_size = 8, .num_workers = 4}, Numbers{});
  std::int64_t next = 0;
  for (const auto& batch : loader) {
    for (const std::int64_t row : batch) CHECK(row == next++);
    CHECK(loader.is_last() == (next == 100));
  }
  CHECK(next == 100);
  CHECK(log->threads.size() == 1);

  auto failing = make_loader(Stream{log, 50}, {.batch_size = 8, .num_workers = 4}, Numbers{});
  std::int64_t seen = 0;
  CHECK_THROWS_AS(
      [&] {
        for ([[maybe_unused]] const auto& batch : failing) {
          ++seen;
          CHECK_FALSE(failing.is_last());
        }
      }(),
      DataError);
  CHECK(seen == 6);
  CHECK(threads_reach(0));
}

TEST_CASE("loader workers: a worker uses one thread of LibTorch, the caller keeps its number") {
  struct Threads {
    std::int64_t size() const { return 4; }
    std::int64_t get(std::int64_t) const { return at::get_num_threads(); }
  };
  const int before = at::get_num_threads();
  auto loader = make_loader(Threads{}, {.batch_size = 4, .num_workers = 1}, Numbers{});
  for (const auto& batch : loader) CHECK(batch == std::vector<std::int64_t>(4, 1));
  CHECK(at::get_num_threads() == before);
}

TEST_CASE("loader workers: several loaders at once do not disturb one another") {
  auto a = make_loader(SlowDataset{64}, {.batch_size = 4, .num_workers = 2}, Numbers{});
  auto b = make_loader(SlowDataset{64},
                       {.batch_size = 8, .shuffle = true, .num_workers = 2, .seed = 5}, Numbers{});
  auto alone =
      make_loader(SlowDataset{64}, {.batch_size = 8, .shuffle = true, .seed = 5}, Numbers{});
  auto in_b = b.begin();
  auto in_alone = alone.begin();
  std::int64_t next = 0;
  for (const auto& batch : a) {
    for (const std::int64_t row : batch) CHECK(row == next++);
    if (in_b != b.end()) {
      CHECK(*in_b == *in_alone);
      ++in_b;
      ++in_alone;
    }
  }
  CHECK(next == 64);
}

TEST_CASE("loader workers: if the system lacks threads, fewer of them make the same batches") {
  auto loader = make_loader(SlowDataset{20}, {.batch_size = 2, .num_workers = 3}, Numbers{});
  {
    const ThreadShortage one_left(1);
    std::int64_t next = 0;
    for (const auto& batch : loader) {
      for (const std::int64_t row : batch) CHECK(row == next++);
    }
    CHECK(next == 20);
  }
  const ThreadShortage none_left;
  CHECK(code_of([&] { loader.begin(); }) == "io.thread");
}

TEST_CASE("loader workers: many short passes leave no thread and no batch behind") {
  auto loader = make_loader(SlowDataset{16}, {.batch_size = 2, .num_workers = 3}, Numbers{});
  for (int round = 0; round < 200; ++round) {
    std::int64_t taken = 0;
    for ([[maybe_unused]] const auto& batch : loader) {
      if (++taken > round % 9) break;
    }
  }
  CHECK(threads_reach(0));
}

}  // namespace data_loader_workers_test
