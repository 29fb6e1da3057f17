#include "test_checks.h"

#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "launch/cores.h"

namespace hasten::cli {

const Group& RankTest::met() const {
  if (!group) throw Skip("the ranks have not met");
  return *group;
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string plural(std::size_t count, const char* word) {
  return str(count, " ", word, count == 1 ? "" : "s");
}

// The fact's text where it is the same for all ranks.
std::string same_for_all(const std::vector<Json>& facts, const char* name, const char* title) {
  const std::string first = facts.front().at(name);
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    const std::string own = facts[rank].at(name);
    if (own != first) throw Wrong(str(title, " of rank ", rank), own, str(first, ", as rank 0's"));
  }
  return first;
}

// Values of a fact, without repetition and in order: "1" or "2, 4".
std::string values_of(const std::vector<Json>& facts, const char* name) {
  std::vector<std::string> values;
  for (const Json& each : facts) {
    const std::string value =
        each.at(name).is_string() ? each.at(name).get<std::string>() : each.at(name).dump();
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return join(values, ", ");
}

double greatest(const std::vector<Json>& facts, const char* name) {
  double most = 0;
  for (const Json& each : facts) most = std::max(most, each.at(name).get<double>());
  return most;
}

// Versions.

Json versions(RankTest&) { return {{"hasten", HASTEN_VERSION}, {"libtorch", TORCH_VERSION}}; }

Told judge_versions(RankTest&, const std::vector<Json>& facts) {
  const std::string hasten = same_for_all(facts, "hasten", "hasten's version");
  const std::string libtorch = same_for_all(facts, "libtorch", "LibTorch's version");
  return {str("hasten ", hasten, ", LibTorch ", libtorch, ", the same on all ranks"),
          {{"hasten", hasten}, {"libtorch", libtorch}}};
}

// Ranks.

Json ranks(RankTest& rank) {
  return {{"world", rank.worker.world_size},
          {"by", std::string(name_of(rank.worker.started_by))},
          {"times", rank.store.add(str(rank.keys, "here/", rank.worker.rank), 1)}};
}

Told judge_ranks(RankTest& rank, const std::vector<Json>& facts) {
  const std::int64_t size = rank.worker.world_size;
  for (std::size_t each = 0; each < facts.size(); ++each) {
    expect_equal(str("the world size of rank ", each), facts[each].at("world").get<std::int64_t>(),
                 size);
    expect_equal(str("how often rank ", each, " is there"),
                 facts[each].at("times").get<std::int64_t>(), 1);
    expect_equal(str("who has started rank ", each), facts[each].at("by").get<std::string>(),
                 "hasten launch");
  }
  return {size == 1 ? "0, once" : str("0 to ", size - 1, ", once each"), {{"world_size", size}}};
}

// Local ranks.

Json local_ranks(RankTest& rank) {
  return {{"host", host_name()},
          {"machine", rank.worker.machine_rank},
          {"machines", rank.worker.num_machines},
          {"local_rank", rank.worker.local_rank},
          {"local_world", rank.worker.local_world_size}};
}

// Each machine has consecutive ranks: 0, 1, ... of its own count.
Told judge_local_ranks(RankTest& rank, const std::vector<Json>& facts) {
  std::vector<std::string> machines;
  std::size_t at = 0;
  while (at < facts.size()) {
    const Json& first = facts[at];
    const auto count = first.at("local_world").get<std::size_t>();
    const auto machine = static_cast<std::int64_t>(machines.size());
    for (std::size_t local = 0; local < count; ++local, ++at) {
      if (at >= facts.size())
        throw Wrong(str("ranks of machine ", machine), local, str(count, ", as it says"));
      expect_equal(str("the local rank of rank ", at),
                   facts[at].at("local_rank").get<std::size_t>(), local);
      expect_equal(str("the machine of rank ", at), facts[at].at("machine").get<std::int64_t>(),
                   machine);
      expect_equal(str("the host of rank ", at), facts[at].at("host").get<std::string>(),
                   first.at("host").get<std::string>());
    }
    machines.push_back(str(count == 1 ? "0" : str("0 to ", count - 1), " on ",
                           first.at("host").get<std::string>()));
  }
  expect_equal("machines", static_cast<std::int64_t>(machines.size()), rank.worker.num_machines);
  return {join(machines, ", "), {{"machines", machines.size()}}};
}

// What they were told of where they meet, of threads and of devices.

Json environment(RankTest& rank) {
  const ProcessState& process = rank.process;
  return {{"address", variable("MASTER_ADDR")},
          {"port", variable("MASTER_PORT")},
          {"machine", rank.worker.machine_rank},
          {"omp", split(variable("OMP_NUM_THREADS") + ",", ',').front()},  // of the outermost level
          {"threads", at::get_num_threads()},
          {"cores", cores_here()},
          {"device", process.device.str()}};
}

Told judge_address(RankTest&, const std::vector<Json>& facts) {
  const std::string address = same_for_all(facts, "address", "MASTER_ADDR");
  const std::string port = same_for_all(facts, "port", "MASTER_PORT");
  if (address.empty() || port.empty()) throw Wrong("MASTER_ADDR and MASTER_PORT are not told");
  return {str("MASTER_ADDR ", address, " and a MASTER_PORT, the same for all"),
          {{"address", address}, {"port", port}}};
}

// Ranks that are bound to cores of their own have together as many as the machine gives them.
struct ThreadsOfMachine {
  std::string omp;
  std::int64_t threads = 0;
  std::set<int> cores;
};

Told judge_threads(RankTest&, const std::vector<Json>& facts) {
  std::map<std::int64_t, ThreadsOfMachine> machines;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const Json& own = facts[rank];
    const std::string omp = own.at("omp");
    const auto threads = own.at("threads").get<std::int64_t>();
    expect_equal(str("threads of rank ", rank), str(threads), omp);
    ThreadsOfMachine& machine = machines[own.at("machine")];
    if (machine.threads == 0) machine.omp = omp;
    expect_equal(str("OMP_NUM_THREADS of rank ", rank), omp, machine.omp);
    machine.threads += threads;
    machine.cores.merge(own.at("cores").get<std::set<int>>());
  }
  std::vector<std::string> texts;
  for (const auto& [number, machine] : machines) {
    const auto cores = static_cast<std::int64_t>(machine.cores.size());
    const std::string text =
        str("OMP_NUM_THREADS ", machine.omp, " for each, of ", plural(machine.cores.size(), "core"),
            machine.threads > cores ? ": more threads than cores" : "");
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return {join(texts, "; "), {{"threads", values_of(facts, "omp")}}};
}

Told judge_devices(RankTest&, const std::vector<Json>& facts) {
  std::set<std::string> kinds;
  std::map<std::string, std::size_t> users;
  for (const Json& each : facts) {
    const std::string device = each.at("device");
    kinds.insert(device.substr(0, device.find(':')));
    ++users[str(each.at("machine").get<std::int64_t>(), " ", device)];
  }
  if (kinds.size() > 1) throw Wrong("devices of ranks", values_of(facts, "device"), "one kind");
  const bool shared = *kinds.begin() == "cuda" && users.size() < facts.size();
  return {str(values_of(facts, "device"), *kinds.begin() == "cpu" ? " for each" : "",
              shared ? ": some ranks share a GPU" : ""),
          {{"devices", values_of(facts, "device")}}};
}

// Process state.

Json process_state(RankTest& rank) {
  const bool cpu = rank.process.device.is_cpu();
  const ProcessState first = ProcessState::of(rank.worker, cpu);
  const ProcessState again = ProcessState::of(worker_of(config::whole_environment()), cpu);
  expect_equal("the rank of a second process state", again.process_index, first.process_index);
  expect_equal("the size of a second process state", again.num_processes, first.num_processes);
  expect_equal("the local rank of a second process state", again.local_process_index,
               first.local_process_index);
  expect_equal("the device of a second process state", again.device.str(), first.device.str());
  expect_equal("the rank of a process state", first.process_index, rank.worker.rank);
  return {{"main", first.is_main_process()},
          {"local_main", first.is_local_main_process()},
          {"last", first.is_last_process()}};
}

Told judge_process_state(RankTest& rank, const std::vector<Json>& facts) {
  std::int64_t local_mains = 0;
  for (std::size_t each = 0; each < facts.size(); ++each) {
    const Json& own = facts[each];
    expect_equal(str("rank ", each, " is the main process"), own.at("main").get<bool>(), each == 0);
    expect_equal(str("rank ", each, " is the last process"), own.at("last").get<bool>(),
                 each + 1 == facts.size());
    local_mains += own.at("local_main").get<bool>() ? 1 : 0;
  }
  expect_equal("local main processes", local_mains, rank.worker.num_machines);
  return {"made twice, equal; one main, one last, one local main a machine", {}};
}

// Meeting.

Json meeting(RankTest& rank) {
  if (rank.worker.world_size == 1) {
    rank.group = Group::single();
    throw Skip("there is one rank");
  }
  const auto began = Clock::now();
  // Shorter than the check: a rank that waits for another says so itself.
  rank.group = Group::form(rank.worker, {.timeout = rank.limit * 9 / 10});
  return {{"seconds", seconds_since(began)}};
}

Told judge_meeting(RankTest& rank, const std::vector<Json>& facts) {
  const double seconds = greatest(facts, "seconds");
  return {str(facts.size(), " ranks in ", fixed(seconds * 1e3, 0), " ms, by the store at ",
              text_of(rank.store.store()), " behind TLS"),
          {{"seconds", seconds}}};
}

// Process execution.

Json process_execution(RankTest& rank) {
  const ProcessState& process = rank.process;
  const Group& group = rank.met();
  const auto runs = [&](const std::string& where) {
    rank.store.append(str(rank.keys, "on/", where), str(process.process_index, " "));
  };
  if (process.is_main_process()) runs("main");
  if (process.is_local_main_process()) runs("local main");
  if (process.is_last_process()) runs("last");
  for (std::int64_t each = 0; each < process.num_processes; ++each) {
    if (process.process_index == each) runs(str("process ", each));
  }
  std::int64_t turn = 0, local_turn = 0;
  {
    const MainProcessFirst first(process, group);
    turn = rank.store.add(rank.keys + "turn", 1);
  }
  {
    const MainProcessFirst first(process, group, /*of_each_machine=*/true);
    local_turn = rank.store.add(str(rank.keys, "turn/", rank.worker.machine_rank), 1);
  }
  return {{"turn", turn}, {"local_turn", local_turn}, {"local_rank", rank.worker.local_rank}};
}

Told judge_process_execution(RankTest& rank, const std::vector<Json>& facts) {
  const auto expect_runs = [&](const std::string& where, const std::set<std::int64_t>& expected) {
    std::set<std::int64_t> got;
    const auto text = rank.store.get({str(rank.keys, "on/", where)}, rank.limit).front();
    for (const std::string& word : split(text, ' ')) {
      if (!word.empty()) got.insert(std::atoll(word.c_str()));
    }
    if (got != expected) throw Wrong(str("what is for ", where, " alone has run on ranks ", text));
  };
  std::set<std::int64_t> local_mains;
  const auto size = static_cast<std::int64_t>(facts.size());
  for (std::int64_t each = 0; each < size; ++each) {
    const Json& own = facts[static_cast<std::size_t>(each)];
    const bool is_local_main = own.at("local_rank") == 0;
    if (is_local_main) local_mains.insert(each);
    if (each == 0) expect_equal("the turn of rank 0", own.at("turn").get<std::int64_t>(), 1);
    if (is_local_main)
      expect_equal(str("the turn on its machine of rank ", each),
                   own.at("local_turn").get<std::int64_t>(), 1);
    expect_runs(str("process ", each), {each});
  }
  expect_runs("main", {0});
  expect_runs("last", {size - 1});
  expect_runs("local main", local_mains);
  return {"main processes first; what is for one runs there alone", {}};
}

// Collectives. Each is checked against what a rank can work out by itself. A mistake is kept until
// the end, so that no rank leaves the others in the middle.

constexpr at::ScalarType kNumbers[] = {at::kFloat, at::kDouble, at::kLong, at::kHalf,
                                       at::kBFloat16};
constexpr at::ScalarType kAll[] = {at::kFloat, at::kDouble,   at::kLong,
                                   at::kHalf,  at::kBFloat16, at::kBool};

std::string name_of_type(at::ScalarType type) { return lower(at::toString(type)); }

// What rank r has: small whole numbers, which sums of many ranks keep exactly in every type.
at::Tensor of_rank(std::int64_t rank, at::ScalarType type) {
  return ((at::arange(12).view({3, 4}) + rank) % 3).to(type);
}

at::Tensor rows(std::int64_t rank, at::ScalarType type) {
  return at::full({rank + 1, 2}, static_cast<double>(rank % 2 + 1)).to(type);
}

class Mistakes {
 public:
  void expect(const std::string& what, const std::function<at::Tensor()>& got,
              const at::Tensor& expected, double tolerance = 0) {
    try {
      const at::Tensor tensor = got();
      const bool same = tolerance == 0
                            ? at::equal(tensor, expected)
                            : tensor.sizes() == expected.sizes() &&
                                  at::allclose(tensor.to(at::kDouble), expected.to(at::kDouble),
                                               tolerance, tolerance);
      if (!same) keep(str(what, ": other numbers than every rank can work out"));
    } catch (const c10::Error& error) {
      keep(str(what, ": ", error.what_without_backtrace()));
    } catch (const std::exception& error) {
      keep(str(what, ": ", error.what()));
    }
  }
  Json end() const {
    if (!first_.empty()) throw Wrong(first_);
    return {};
  }

 private:
  void keep(const std::string& text) {
    if (first_.empty()) first_ = text;
  }
  std::string first_;
};

double tolerance_of(at::ScalarType type, std::int64_t ranks) {
  if (type == at::kLong) return 0;
  const double step = type == at::kHalf ? 1e-3 : type == at::kBFloat16 ? 8e-3 : 1e-6;
  return step * static_cast<double>(ranks);
}

Json gather(RankTest& rank) {
  const Group& group = rank.met();
  Mistakes mistakes;
  for (const auto type : kAll) {
    std::vector<at::Tensor> parts;
    for (std::int64_t each = 0; each < group.size(); ++each) parts.push_back(of_rank(each, type));
    mistakes.expect(
        name_of_type(type), [&] { return group.gather(of_rank(group.rank(), type)); },
        at::cat(parts));
  }
  return mistakes.end();
}

Json reduce(RankTest& rank) {
  const Group& group = rank.met();
  Mistakes mistakes;
  for (const auto type : kNumbers) {
    at::Tensor sum = at::zeros({3, 4}, at::kDouble), most = sum;
    for (std::int64_t each = 0; each < group.size(); ++each) {
      sum = sum + of_rank(each, at::kDouble);
      most = at::maximum(most, of_rank(each, at::kDouble));
    }
    const double tolerance = tolerance_of(type, group.size());
    const at::Tensor own = of_rank(group.rank(), type);
    const std::string name = name_of_type(type);
    mistakes.expect(
        "sum, " + name, [&] { return group.reduce(own); }, sum.to(type), tolerance);
    mistakes.expect(
        "mean, " + name, [&] { return group.reduce(own, Reduction::mean); },
        sum / static_cast<double>(group.size()), std::max(tolerance, 1e-6));
    mistakes.expect(
        "max, " + name, [&] { return group.reduce(own, Reduction::max); }, most.to(type));
  }
  return mistakes.end();
}

Json broadcast(RankTest& rank) {
  const Group& group = rank.met();
  Mistakes mistakes;
  for (const auto type : kAll) {
    for (std::int64_t from = 0; from < group.size(); ++from)
      mistakes.expect(
          str(name_of_type(type), " from rank ", from),
          [&] { return group.broadcast(of_rank(group.rank(), type), from); }, of_rank(from, type));
  }
  return mistakes.end();
}

Json pad_across_processes(RankTest& rank) {
  const Group& group = rank.met();
  Mistakes mistakes;
  for (const auto type : kAll) {
    const at::Tensor own = rows(group.rank(), type);
    const at::Tensor filling = at::zeros({group.size() - own.size(0), 2}, own.options());
    mistakes.expect(
        name_of_type(type), [&] { return group.pad_across_processes(own); },
        at::cat({own, filling}));
    mistakes.expect(
        name_of_type(type) + ", filled before",
        [&] { return group.pad_across_processes(own, 0, 0, /*pad_first=*/true); },
        at::cat({filling, own}));
  }
  return mistakes.end();
}

// Nobody is through before all have come.
Json barrier(RankTest& rank) {
  const Group& group = rank.met();
  const std::string key = rank.keys + "before the barrier";
  rank.store.add(key, 1);
  group.barrier();
  expect_equal("ranks at the barrier when one is through", rank.store.add(key, 0), group.size());
  return {};
}

std::string types_text(std::span<const at::ScalarType> types) {
  std::vector<std::string> names;
  for (const auto type : types) names.push_back(name_of_type(type));
  return join(names, ", ");
}

Told judge_all_types(RankTest&, const std::vector<Json>&) { return {types_text(kAll), {}}; }
Told judge_reduce(RankTest&, const std::vector<Json>&) {
  return {"sum, mean, max of " + types_text(kNumbers), {}};
}
Told judge_broadcast(RankTest&, const std::vector<Json>& facts) {
  return {str("from each of ", plural(facts.size(), "rank"), ": ", types_text(kAll)), {}};
}
Told judge_barrier(RankTest&, const std::vector<Json>& facts) {
  return {str("nobody is through before all ", facts.size(), " are there"), {}};
}

// Seeds.

std::string digest(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  const auto* const bytes = static_cast<const unsigned char*>(whole.data_ptr());
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (std::size_t i = 0; i < whole.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return str(hash);
}

Json seeds(RankTest&) {
  torch::manual_seed(4711);
  std::string all = digest(at::rand({1000})) + digest(at::randn({1000})) +
                    digest(at::randperm(1000)) + digest(at::empty({1000}).bernoulli_(0.1));
  return {{"digest", all}};
}

Told judge_seeds(RankTest&, const std::vector<Json>& facts) {
  same_for_all(facts, "digest", "random numbers after manual_seed(4711), as a digest");
  return {"uniform, normal, permuted, dropped: the same on all ranks", {}};
}

// Bandwidth.

// Half of the calls take longer. All ranks make the same number of calls.
double median_seconds(const Group& group, std::int64_t bytes, int calls) {
  std::vector<at::Tensor> both = {at::ones({bytes / 4})};
  std::vector<double> seconds;
  group.barrier();
  for (int call = 0; call <= calls; ++call) {
    const auto began = Clock::now();
    group.native()->allreduce(both)->wait();
    if (call > 0) seconds.push_back(seconds_since(began));  // the first one warms up
    both[0].fill_(1);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

template <std::int64_t bytes, int calls>
Json all_reduce(RankTest& rank) {
  if (rank.met().size() == 1) throw Skip("there is one rank");
  return {{"seconds", median_seconds(rank.met(), bytes, calls)}};
}

// In nccl-tests' words: the data by the time, and that times 2 (n - 1) / n, what each link carries.
template <std::int64_t bytes>
Told judge_all_reduce(RankTest&, const std::vector<Json>& facts) {
  const double seconds = greatest(facts, "seconds"), size = static_cast<double>(facts.size());
  const double algorithm = static_cast<double>(bytes) / seconds / 1e9;
  const double bus = algorithm * 2 * (size - 1) / size;
  return {str(fixed(seconds * 1e6, 0), " µs, ", significant(algorithm, 3), " GB/s, on the bus ",
              significant(bus, 3), " GB/s"),
          {{"microseconds", seconds * 1e6}, {"algorithm_gb_s", algorithm}, {"bus_gb_s", bus}}};
}

constexpr std::int64_t kKilobyte = 1000, kMegabyte = 1000 * kKilobyte;

constexpr Check checks[] = {
    {"versions", versions, judge_versions},
    {"ranks", ranks, judge_ranks},
    {"local ranks", local_ranks, judge_local_ranks},
    {"address", environment, judge_address},
    {"threads", environment, judge_threads},
    {"devices", environment, judge_devices},
    {"process state", process_state, judge_process_state},
    {"meeting", meeting, judge_meeting},
    {"process execution", process_execution, judge_process_execution},
    {"gather", gather, judge_all_types},
    {"reduce", reduce, judge_reduce},
    {"broadcast", broadcast, judge_broadcast},
    {"pad_across_processes", pad_across_processes, judge_all_types},
    {"barrier", barrier, judge_barrier},
    {"seeds", seeds, judge_seeds},
    {"all-reduce of 1 KB", all_reduce<kKilobyte, 100>, judge_all_reduce<kKilobyte>},
    {"all-reduce of 1 MB", all_reduce<kMegabyte, 20>, judge_all_reduce<kMegabyte>},
    {"all-reduce of 64 MB", all_reduce<64 * kMegabyte, 3>, judge_all_reduce<64 * kMegabyte>},
};

}  // namespace

std::span<const Check> checks_of_ranks() { return checks; }

}  // namespace hasten::cli
