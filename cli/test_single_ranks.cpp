// Compares what each rank of `hasten test` finds by itself: its environment variables, its process
// state, and its random numbers.
#include "test_checks.h"

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/count_text.h"
#include "base/environment_variable.h"
#include "base/process_state.h"
#include "launch/topology.h"

namespace hasten::cli {
namespace {

// All ranks must run the same versions.

Json versions(RankContext&) { return {{"hasten", HASTEN_VERSION}, {"libtorch", TORCH_VERSION}}; }

CheckOutcome evaluate_versions(RankContext&, const std::vector<Json>& facts) {
  const std::string hasten = same_for_all(facts, "hasten", "hasten's version");
  const std::string libtorch = same_for_all(facts, "libtorch", "LibTorch's version");
  return {str("hasten ", hasten, ", LibTorch ", libtorch, ", the same on all ranks"),
          {{"hasten", hasten}, {"libtorch", libtorch}}};
}

// Each rank must exist once.

Json ranks(RankContext& rank) {
  return {{"world", rank.worker.world_size},
          {"by", std::string(name_of(rank.worker.started_by))},
          {"times", rank.store.add(str(rank.keys, "here/", rank.worker.rank), 1)}};
}

CheckOutcome evaluate_ranks(RankContext& rank, const std::vector<Json>& facts) {
  const std::int64_t size = rank.worker.world_size;
  for (std::size_t each = 0; each < facts.size(); ++each) {
    expect_equal(str("the world size of rank ", each), facts[each].at("world").get<std::int64_t>(),
                 size);
    expect_equal(str("processes with rank ", each), facts[each].at("times").get<std::int64_t>(), 1);
    expect_equal(str("the launcher of rank ", each), facts[each].at("by").get<std::string>(),
                 "hasten launch");
  }
  return {size == 1 ? "0, once" : str("0 to ", size - 1, ", once each"), {{"world_size", size}}};
}

// Each machine must have consecutive ranks, with the local ranks 0, 1, ... of its own count.

Json local_ranks(RankContext& rank) {
  return {{"host", host_name()},
          {"machine", rank.worker.machine_rank},
          {"machines", rank.worker.num_machines},
          {"local_rank", rank.worker.local_rank},
          {"local_world", rank.worker.local_world_size}};
}

CheckOutcome evaluate_local_ranks(RankContext& rank, const std::vector<Json>& facts) {
  std::vector<std::string> machines;
  std::size_t at = 0;
  while (at < facts.size()) {
    const Json& first = facts[at];
    const auto count = first.at("local_world").get<std::size_t>();
    const auto machine = static_cast<std::int64_t>(machines.size());
    for (std::size_t local = 0; local < count; ++local, ++at) {
      if (at >= facts.size())
        throw CheckFailed(str("ranks of machine ", machine), local,
                          str(count, ", its local world size"));
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

// The ranks must agree on the address of rank 0, on their threads and on the kind of their device.

Json environment(RankContext& rank) {
  const ProcessState& process = rank.process;
  return {{"address", environment_variable("MASTER_ADDR")},
          {"port", environment_variable("MASTER_PORT")},
          {"machine", rank.worker.machine_rank},
          // The first entry of a list is for the outermost level.
          {"omp", split(environment_variable("OMP_NUM_THREADS") + ",", ',').front()},
          {"threads", at::get_num_threads()},
          {"cores", usable_cpus()},
          {"device", process.device.str()}};
}

CheckOutcome evaluate_address(RankContext&, const std::vector<Json>& facts) {
  const std::string address = same_for_all(facts, "address", "MASTER_ADDR");
  const std::string port = same_for_all(facts, "port", "MASTER_PORT");
  if (address.empty() || port.empty()) throw CheckFailed("MASTER_ADDR or MASTER_PORT is not set");
  return {str("the same MASTER_ADDR ", address, " and the same MASTER_PORT on all ranks"),
          {{"address", address}, {"port", port}}};
}

// The threads of all ranks of one machine. Each rank may be bound to separate cores.
struct MachineThreads {
  std::string omp;
  std::int64_t threads = 0;
  std::set<int> cores;
};

CheckOutcome evaluate_threads(RankContext&, const std::vector<Json>& facts) {
  std::map<std::int64_t, MachineThreads> machines;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const Json& own = facts[rank];
    const std::string omp = own.at("omp");
    const auto threads = own.at("threads").get<std::int64_t>();
    expect_equal(str("threads of rank ", rank), str(threads), omp);
    MachineThreads& machine = machines[own.at("machine")];
    if (machine.threads == 0) machine.omp = omp;
    expect_equal(str("OMP_NUM_THREADS of rank ", rank), omp, machine.omp);
    machine.threads += threads;
    machine.cores.merge(own.at("cores").get<std::set<int>>());
  }
  std::vector<std::string> texts;
  for (const auto& [number, machine] : machines) {
    const auto cores = static_cast<std::int64_t>(machine.cores.size());
    const std::string text = str("OMP_NUM_THREADS ", machine.omp, " per rank, ",
                                 count_text(std::ssize(machine.cores), "core"),
                                 machine.threads > cores ? ": more threads than cores" : "");
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return {join(texts, "; "), {{"threads", values_of(facts, "omp")}}};
}

CheckOutcome evaluate_devices(RankContext&, const std::vector<Json>& facts) {
  std::set<std::string> kinds;
  std::map<std::string, std::size_t> users;
  for (const Json& each : facts) {
    const std::string device = each.at("device");
    kinds.insert(device.substr(0, device.find(':')));
    ++users[str(each.at("machine").get<std::int64_t>(), " ", device)];
  }
  if (kinds.size() > 1)
    throw CheckFailed("devices of ranks", values_of(facts, "device"), "one kind");
  const bool shared = *kinds.begin() == "cuda" && users.size() < facts.size();
  return {str(values_of(facts, "device"), *kinds.begin() == "cpu" ? " on each rank" : "",
              shared ? ": some ranks share a GPU" : ""),
          {{"devices", values_of(facts, "device")}}};
}

// Each rank must find the same process state each time it asks.

Json repeated_process_state(RankContext& rank) {
  const bool cpu = rank.process.device.is_cpu();
  const ProcessState first = ProcessState::of(rank.worker, cpu);
  const ProcessState again = ProcessState::of(this_worker(), cpu);
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

CheckOutcome evaluate_process_state(RankContext& rank, const std::vector<Json>& facts) {
  std::int64_t local_mains = 0;
  for (std::size_t each = 0; each < facts.size(); ++each) {
    const Json& own = facts[each];
    expect_equal(str("rank ", each, " is the main process"), own.at("main").get<bool>(), each == 0);
    expect_equal(str("rank ", each, " is the last process"), own.at("last").get<bool>(),
                 each + 1 == facts.size());
    local_mains += own.at("local_main").get<bool>() ? 1 : 0;
  }
  expect_equal("local main processes", local_mains, rank.worker.num_machines);
  return {"created twice, equal; one main, one last, one local main per machine", {}};
}

// The same seed must give all ranks the same random numbers.

std::string digest(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return short_digest({static_cast<const char*>(whole.data_ptr()), whole.nbytes()});
}

Json seeds(RankContext&) {
  torch::manual_seed(4711);
  std::string all = digest(at::rand({1000})) + digest(at::randn({1000})) +
                    digest(at::randperm(1000)) + digest(at::empty({1000}).bernoulli_(0.1));
  return {{"digest", all}};
}

CheckOutcome evaluate_seeds(RankContext&, const std::vector<Json>& facts) {
  same_for_all(facts, "digest", "random numbers after manual_seed(4711), as a digest");
  return {"uniform, normal, permutation, Bernoulli: the same on all ranks", {}};
}

}  // namespace

std::vector<Check> checks_of_single_ranks() {
  return {
      {"versions", versions, evaluate_versions},
      {"ranks", ranks, evaluate_ranks},
      {"local ranks", local_ranks, evaluate_local_ranks},
      {"address", environment, evaluate_address},
      {"threads", environment, evaluate_threads},
      {"devices", environment, evaluate_devices},
      {"process state", repeated_process_state, evaluate_process_state},
      {"seeds", seeds, evaluate_seeds},
  };
}

}  // namespace hasten::cli
