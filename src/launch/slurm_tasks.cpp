#include "launch/slurm_tasks.h"

#include <algorithm>

#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Slurm uses numbers from this one on for everything that runs outside srun: the batch script, the
// interactive shell and others.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;

struct TaskGroup {
  std::int64_t tasks = 0;
  std::int64_t machines = 0;
};

[[noreturn]] void throw_bad_task_list(std::string_view list) {
  throw_environment({.what = "SLURM_STEP_TASKS_PER_NODE",
                     .got = "'" + std::string(list) + "'",
                     .expected = "the number of tasks on each machine, such as 2(x3),1"});
}

std::int64_t take_number(std::string_view& text, std::string_view list) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto value = parse_number<std::int64_t>(text.substr(0, digits));
  if (!value || *value < 1 || *value >> 40 != 0) throw_bad_task_list(list);
  text.remove_prefix(digits);
  return *value;
}

TaskGroup parse_task_group(std::string_view text, std::string_view list) {
  TaskGroup group{.tasks = take_number(text, list), .machines = 1};
  if (text.empty()) return group;
  if (!starts_with(text, "(x")) throw_bad_task_list(list);
  text.remove_prefix(2);
  group.machines = take_number(text, list);
  if (text != ")") throw_bad_task_list(list);
  return group;
}

}  // namespace

std::string slurm_job_name(const Variables& variables) {
  const std::string array = variables.text("SLURM_ARRAY_JOB_ID"),
                    task = variables.text("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? variables.text("SLURM_JOB_ID") : array + "_" + task;
}

std::string user_or_slurm_job_name(const std::string& user, const Variables& variables) {
  return user.empty() ? slurm_job_name(variables) : user;
}

int slurm_restarts(const Variables& variables) {
  const auto restarts = variables.number("SLURM_RESTART_COUNT").value_or(0);
  return static_cast<int>(std::min<std::int64_t>(restarts, 1 << 20));
}

bool is_slurm_task(const Variables& variables) {
  const auto tasks = variables.number("SLURM_STEP_NUM_TASKS");
  if (!tasks || variables.number("SLURM_STEP_ID").value_or(0) >= kFirstSpecialStep) return false;
  return variables.number("SLURM_NTASKS").value_or(*tasks) == *tasks;
}

std::int64_t tasks_of_machine(std::string_view list, std::int64_t at) {
  for (const std::string& text : split(list, ',')) {
    const TaskGroup group = parse_task_group(text, list);
    if (at < group.machines) return group.tasks;
    at -= group.machines;
  }
  throw_bad_task_list(list);
}

}  // namespace hasten
