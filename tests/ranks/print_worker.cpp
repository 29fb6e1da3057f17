// Prints its worker as one line of JSON; with --hosts LIST it prints the hosts of a Slurm list, one
// per line.
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/launch/worker.h"

using namespace hasten;

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::string(argv[1]) == "--hosts") {
      for (const std::string& host : expand_slurm_hosts(argv[2])) std::printf("%s\n", host.c_str());
      return 0;
    }
    const Worker worker = this_worker();
    const nlohmann::json line = {{"started_by", name_of(worker.started_by)},
                                 {"rank", worker.rank},
                                 {"world_size", worker.world_size},
                                 {"local_rank", worker.local_rank},
                                 {"local_world_size", worker.local_world_size},
                                 {"machine_rank", worker.machine_rank},
                                 {"num_machines", worker.num_machines},
                                 {"attempt", worker.attempt},
                                 {"job", worker.job},
                                 {"master_addr", worker.master_addr},
                                 {"master_port", worker.master_port},
                                 {"address_source", worker.address_source},
                                 {"port_source", worker.port_source},
                                 {"store_is_served", worker.store_is_served}};
    // Writes the line at once, because otherwise the lines of several processes could be mixed.
    const std::string text = line.dump() + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error[%s]: %s\n", error.code().c_str(), error.what());
    return error.exit_code();
  }
}
