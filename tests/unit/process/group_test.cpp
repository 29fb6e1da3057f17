// A group of one rank takes the same calls as larger groups, and every collective is the identity.
#include "hasten/process/group.h"

#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "hasten/launch/worker.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"

namespace process_group_test {

using namespace hasten;

TEST_CASE("group: in a group of one, collectives return their input") {
  const Group group = Group::single();
  CHECK(group.size() == 1);
  CHECK(group.rank() == 0);
  const at::Tensor rows = at::arange(6).view({3, 2});
  CHECK(at::equal(group.gather(rows), rows));
  CHECK(at::equal(group.reduce(rows), rows));
  CHECK(at::equal(group.reduce(rows, Reduction::mean, 0.5), rows * 0.5));
  CHECK(at::equal(group.broadcast(rows), rows));
  CHECK(at::equal(group.pad_across_processes(rows), rows));
  group.barrier();
}

TEST_CASE("group: a scalar is gathered as one number per rank") {
  const at::Tensor gathered = Group::single().gather(at::scalar_tensor(3.0));
  CHECK(gathered.sizes() == at::IntArrayRef{1});
  CHECK(gathered[0].item<double>() == 3.0);
}

TEST_CASE("group: a rank outside the group cannot send") {
  CHECK_THROWS_AS(Group::single().broadcast(at::ones({1}), 1), c10::Error);
}

TEST_CASE("group: a rank with a GPU and one without form a group") {
  notebook_launcher(
      [] {
        const Worker worker = this_worker();
        const at::Device device =
            worker.rank == 0 ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
        const Group group =
            Group::form(worker, {.timeout = std::chrono::seconds(20), .device = device});
        if (!group.reduce(at::ones({3})).eq(2).all().item<bool>())
          throw std::runtime_error("another sum");
      },
      {.num_processes = 2, .use_cpu = true});
}

TEST_CASE("group: rank 0 serves the keys of all groups of a job without hasten launch") {
  for (const bool has_token : {true, false}) {
    notebook_launcher(
        [has_token] {
          unsetenv("HASTEN_STORE");  // as under mpirun
          if (!has_token) unsetenv("HASTEN_JOB_TOKEN");
          const Worker worker = this_worker();
          const GroupOptions options{.timeout = std::chrono::seconds(20)};
          {
            const Group first = Group::form(worker, options);
            const Group second = Group::form(worker, options);
            second.barrier();
            first.barrier();
          }
          for (int i = 0; i < 3; ++i) {
            const Group group = Group::form(worker, options);
            group.barrier();
            if (worker.rank == 0) usleep(100'000);  // rank 1 forms its next group meanwhile
          }
          const Group last = Group::form(worker, options);
          last.barrier();
          if (worker.rank == 0) usleep(100'000);  // rank 1 may still use the server
        },
        {.num_processes = 2, .use_cpu = true});
  }
}

TEST_CASE("process: one process is the first, the last and the main one") {
  const ProcessState process = ProcessState::of(Worker{}, /*cpu=*/true);
  CHECK(process.device.is_cpu());
  CHECK(process.is_main_process());
  CHECK(process.is_local_main_process());
  CHECK(process.is_last_process());
  const ProcessState second{.process_index = 1, .num_processes = 3, .local_process_index = 1};
  CHECK_FALSE(second.is_main_process());
  CHECK_FALSE(second.is_local_main_process());
  CHECK_FALSE(second.is_last_process());
}

}  // namespace process_group_test
