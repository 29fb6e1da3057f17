// Simulated machines, as the kernel would describe them, and the division of their cores.
#include "launch/topology.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "launch/cores.h"

namespace launch_topology_test {

using namespace hasten;

namespace {

namespace fs = std::filesystem;

// A folder with a tree like /sys and /proc.
class Machine {
 public:
  Machine& file(const std::string& path, const std::string& text) {
    fs::create_directories((folder_.path() / path).parent_path());
    write_file_atomically((folder_.path() / path).string(), text + "\n");
    return *this;
  }
  Machine& node(int number, const std::string& cpus) {
    return file(str("sys/devices/system/node/node", number, "/cpulist"), cpus);
  }
  // Sets the hyperthreads of one core.
  Machine& siblings(const std::string& list) {
    for (const int cpu : parse_number_list(list))
      file(str("sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"), list);
    return *this;
  }
  Machine& gpu(const std::string& bus, int node) {
    std::string upper = bus;
    for (char& letter : upper) letter = letter >= 'a' && letter <= 'f' ? letter - 32 : letter;
    file("proc/driver/nvidia/gpus/" + bus + "/information",
         "Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nBus Location: \t " + upper);
    return file("sys/bus/pci/devices/" + bus + "/numa_node", str(node));
  }
  Topology topology(const std::string& usable) const {
    return topology_of(folder_.path(), parse_number_list(usable));
  }

 private:
  TemporaryDirectory folder_;
};

// Returns the CPUs of each share, such as "0,1 2,3".
std::string shares(const Topology& topology, std::size_t count, const std::vector<int>& gpus = {}) {
  std::vector<std::string> texts;
  for (const auto& share : partition_cores(topology, count, gpus)) {
    std::vector<std::string> cpus;
    for (const int cpu : share) cpus.push_back(std::to_string(cpu));
    texts.push_back(join(cpus, ","));
  }
  return join(texts, " ");
}

struct TwoNodes : Machine {
  TwoNodes() { node(0, "0-3").node(1, "4-7"); }
};

}  // namespace

TEST_CASE("topology: lists of numbers are parsed") {
  CHECK(parse_number_list("0-3,8\n") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(parse_number_list("5") == std::vector<int>{5});
  for (const char* none : {"", "\n", "x", "-1", "3-1", "0-99999999", "0x1", "4294967296"})
    CHECK_MESSAGE(parse_number_list(none).empty(), none);
  CHECK(parse_number_list("1,2,x,3") == std::vector<int>{1, 2});
}

TEST_CASE("topology: a machine without a description has its CPUs as cores of one node") {
  const Topology topology = Machine().topology("0-3");
  CHECK(topology.cores.size() == 4);
  CHECK(topology.gpu_nodes.empty());
  CHECK(topology.quota == 0);
  CHECK(shares(topology, 2) == "0,1 2,3");
  CHECK(shares(topology, 3) == "0 1 2,3");
  CHECK(shares(topology, 8) == "0 0 1 1 2 2 3 3");
  CHECK(shares(Machine().topology(""), 2) == " ");
  // The machine that runs this test has cores, too.
  CHECK(!topology_of("/", usable_cpus()).cores.empty());
}

TEST_CASE("cores: nodes are divided first, and hyperthreads of a core stay together") {
  CHECK(shares(TwoNodes().topology("0-7"), 2) == "0,1,2,3 4,5,6,7");
  CHECK(shares(TwoNodes().topology("0-7"), 4) == "0,1 2,3 4,5 6,7");
  CHECK(shares(TwoNodes().topology("0-7"), 1) == "0,1,2,3,4,5,6,7");
  // One node has two of the three shares, and no share has cores of both nodes.
  CHECK(shares(TwoNodes().topology("0-7"), 3) == "0,1,2,3 4,5 6,7");
  // CPUs alternate between the nodes.
  Machine turns;
  turns.node(0, "0,2,4,6").node(1, "1,3,5,7");
  CHECK(shares(turns.topology("0-7"), 2) == "0,2,4,6 1,3,5,7");
  // CPUs 4 to 7 are the siblings of CPUs 0 to 3.
  Machine threads;
  threads.node(0, "0-1,4-5").node(1, "2-3,6-7");
  for (const char* core : {"0,4", "1,5", "2,6", "3,7"}) threads.siblings(core);
  CHECK(threads.topology("0-7").cores.size() == 4);
  CHECK(shares(threads.topology("0-7"), 4) == "0,4 1,5 2,6 3,7");
  CHECK(shares(threads.topology("0-7"), 2) == "0,1,4,5 2,3,6,7");
  CHECK(shares(threads.topology("0-7"), 8) == "0,4 0,4 1,5 1,5 2,6 2,6 3,7 3,7");
}

TEST_CASE("cores: uneven nodes, offline CPUs and a part of the machine are divided") {
  Machine uneven;
  uneven.node(0, "0-3").node(1, "4-15");
  CHECK(shares(uneven.topology("0-15"), 4) == "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15");
  CHECK(shares(uneven.topology("0-15"), 2) == "4,5,6,7,8,9 10,11,12,13,14,15");
  // CPUs 1 and 5 are offline: the kernel neither lists nor uses them.
  Machine off;
  off.node(0, "0,2-3").node(1, "4,6-7");
  CHECK(shares(off.topology("0,2-4,6-7"), 2) == "0,2,3 4,6,7");
  // A container may have CPUs of the second node only, or a few CPUs of each node.
  CHECK(shares(TwoNodes().topology("4-6"), 3) == "4 5 6");
  CHECK(shares(TwoNodes().topology("2,3,4"), 2) == "2,3 4");
  Machine memory_only;  // a node without CPUs
  memory_only.node(0, "0-3").node(1, "");
  CHECK(shares(memory_only.topology("0-3"), 2) == "0,1 2,3");
  // A sibling of a core may belong to another process.
  Machine split_core;
  split_core.siblings("0,2").siblings("1,3");
  CHECK(shares(split_core.topology("0,1,2"), 2) == "0,2 1");
  Machine four;
  four.node(0, "0-1").node(1, "2-3").node(2, "4-5").node(3, "6-7");
  CHECK(shares(four.topology("0-7"), 2) == "0,1,2,3 4,5,6,7");
}

TEST_CASE("cores: processes with GPUs are near them") {
  TwoNodes machine;
  machine.gpu("0000:3b:00.0", 1).gpu("0000:1a:00.0", 0).gpu("0000:5e:00.0", 1);
  const Topology topology = machine.topology("0-7");
  CHECK(topology.gpu_nodes == std::vector<int>{0, 1, 1});  // in the bus's order
  CHECK(shares(topology, 3, {0, 1, 2}) == "0,1,2,3 4,5 6,7");
  CHECK(shares(topology, 2, {1, 2}) == "4,5 6,7");
  CHECK(shares(topology, 2, {2, 0}) == "4,5,6,7 0,1,2,3");
  CHECK(shares(topology, 1, {1}) == "4,5,6,7");
  // A missing GPU, or a GPU on a node that is unknown or not allowed, counts as no GPU.
  CHECK(shares(topology, 2, {0, 7}) == "0,1,2,3 4,5,6,7");
  CHECK(shares(topology, 2, {0, -1}) == "0,1,2,3 4,5,6,7");
  CHECK(shares(machine.topology("0-3"), 2, {0, 1}) == "0,1 2,3");
  TwoNodes without_node;
  without_node.gpu("0000:1a:00.0", -1);
  CHECK(shares(without_node.topology("0-7"), 2, {0, 0}) == "0,1,2,3 4,5,6,7");
}

TEST_CASE("cores: threads are limited by cores and by control groups") {
  Machine machine;
  for (int core = 0; core < 32; ++core) machine.siblings(str(core, ",", core + 32));
  CHECK(threads_per_process(machine.topology("0-63"), 1) == 32);
  CHECK(threads_per_process(machine.topology("0-63"), 4) == 8);
  CHECK(threads_per_process(machine.topology("0-63"), 100) == 1);
  machine.file("proc/self/cgroup", "12:cpu:/other\n0::/pods/train")
      .file("sys/fs/cgroup/cpu.max", "max 100000")
      .file("sys/fs/cgroup/pods/cpu.max", "800000 100000")
      .file("sys/fs/cgroup/pods/train/cpu.max", "max 100000");
  CHECK(machine.topology("0-63").quota == 8);  // the quota of the parent group
  machine.file("sys/fs/cgroup/pods/train/cpu.max", "200000 100000");
  CHECK(threads_per_process(machine.topology("0-63"), 1) == 2);
  CHECK(threads_per_process(machine.topology("0-63"), 2) == 1);
  machine.file("sys/fs/cgroup/pods/train/cpu.max", "50000 100000");
  CHECK(threads_per_process(machine.topology("0-63"), 1) == 1);
  // The group's own path does not exist in a container whose root is the group.
  machine.file("proc/self/cgroup", "0::/../../elsewhere")
      .file("sys/fs/cgroup/cpu.max", "350000 100000");
  CHECK(threads_per_process(machine.topology("0-63"), 1) == 3);
  for (const char* wrong : {"", "max", "x 100000", "100000", "-1 100000", "1 0", "1 2 3"}) {
    machine.file("sys/fs/cgroup/cpu.max", wrong);
    CHECK(machine.topology("0-63").quota == 0);
  }
}

}  // namespace launch_topology_test
