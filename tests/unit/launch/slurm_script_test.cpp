// The script for sbatch: the words that a shell reads, and the requests to Slurm.
#include "hasten/launch/slurm_script.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "unit/code_of.h"

namespace launch_slurm_script_test {

using namespace hasten;

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part;
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), got);
  CHECK(pclose(pipe) == 0);
  return text;
}

SlurmScript parsed(std::vector<std::string> words, std::int64_t num_machines = 2) {
  words.insert(words.begin(), {"--num_machines", std::to_string(num_machines)});
  const auto run = parse_launch(words, {});
  return slurm_script(run, "hasten");
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

const std::vector<std::string> kSpecialWords = {
    "",        " ",  "a b",  "it's", "'",       "''", "\"",    "$HOME", "$(false)",
    "`false`", "\\", "a\nb", "\n",   "*",       "~",  "#",     "!x",    ";",
    "&",       "|",  "<",    ">",    "(",       ")",  "{a,b}", "[a]",   "\t",
    "--",      "ä€", "a=b",  "-n",   "${x:-y}", "%j", "\\n",   "end\\"};

}  // namespace

TEST_CASE("Slurm script: a shell reads back every word unchanged") {
  for (const std::string& word : kSpecialWords) {
    CAPTURE(word);
    CHECK(output_of("printf '%s.' " + shell_word(word)) == word + ".");
  }
  CHECK(shell_word("./train") == "./train");
  CHECK(shell_word("a b") == "'a b'");
}

TEST_CASE("Slurm script: each launcher gets its machine's number and the program's words") {
  // Here srun and scontrol are shell functions. srun prints the words that it should start.
  SlurmScript script{.hasten = "/opt/a b/hasten",
                     .num_machines = 3,
                     .options = {"--num_processes", "12", "--log_dir", "the logs"},
                     .program = {"./train"}};
  script.program.insert(script.program.end(), kSpecialWords.begin(), kSpecialWords.end());
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "run.sbatch").string();
  write_file_atomically(
      file,
      "scontrol() { [ \"$*\" = 'show hostnames gpu[1-3]' ] && printf 'gpu1\\ngpu2\\ngpu3\\n'; }\n"
      "srun() { while [ \"$1\" != bash ]; do shift; done; [ \"$2\" = -c ] || exit 9\n"
      "  printf '%s|' \"${3%% *}\" \"${@:4}\" \"$SLURM_NODEID\" ${#HASTEN_JOB_TOKEN}; }\n" +
          to_text(script));
  output_of("bash -n " + file);
  const std::string got =
      output_of("SLURM_NODEID=2 SLURM_JOB_ID=9999 SLURM_JOB_NODELIST='gpu[1-3]' bash " + file);
  std::string expected =
      "exec|/opt/a b/hasten|--num_machines|3|--main_process_ip|gpu1|--main_process_port|20026|"
      "--num_processes|12|--log_dir|the logs|--|./train|";
  for (const std::string& word : kSpecialWords) expected += word + "|";
  CHECK(got == expected + "2|64|");
}

TEST_CASE("Slurm script: the options become Slurm's lines") {
  const std::string text = to_text(parsed({"--slurm",    "--num_processes",
                                           "8",          "--slurm_time",
                                           "1-12:00:00", "--slurm_partition",
                                           "a100",       "--slurm_account",
                                           "lab",        "--slurm_signal",
                                           "USR1@120",   "--slurm_gpus_per_node",
                                           "4",          "--slurm_cpus_per_task",
                                           "16",         "--mixed_precision",
                                           "bf16",       "./my train",
                                           "--epochs",   "3"}));
  for (const char* line :
       {"#SBATCH --job-name=my_train", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=16", "#SBATCH --gres=gpu:4", "#SBATCH --time=1-12:00:00",
        "#SBATCH --partition=a100", "#SBATCH --account=lab", "#SBATCH --output=my_train-%j.log",
        "#SBATCH --requeue", "#SBATCH --signal=USR1@120"}) {
    CAPTURE(line);
    CHECK(has_line(text, line));
  }
  CHECK(starts_with(text, "#!/bin/bash\n"));
  CHECK(text.find(" --num_processes 8 --mixed_precision bf16 -- \\\n"
                  "  './my train' --epochs 3 || code=$?\n") != std::string::npos);
  CHECK(text.find("--cpus-per-task=16 --cpu-bind=none") != std::string::npos);
  CHECK(text.find("slurm_time") == std::string::npos);
  CHECK(text.find("--machine_rank \"$SLURM_NODEID\" --no_config_file \"${@:2}\"") !=
        std::string::npos);

  const std::string plain = to_text(parsed({"--slurm", "train"}));
  CHECK(has_line(plain, "#SBATCH --exclusive"));
  // No signal is requested by default, because it would end a program that does not handle it.
  for (const char* absent : {"--signal", "USR1", "scontrol requeue", "--time", "--partition",
                             "--account", "--gres", "--cpus-per-task"})
    CHECK(plain.find(absent) == std::string::npos);
}

TEST_CASE("Slurm script: a run that Slurm's signal has stopped is requeued, and no other run") {
  // Here srun is a shell function that runs one launcher after the other, and returns the largest
  // exit code, as srun does. A launcher is a script that ends with its machine's code. While it
  // runs, its shell receives the signal, too.
  const auto requeued = [](const std::string& signal, const std::string& codes, int script_code) {
    const TemporaryDirectory folder;
    const std::string launcher = (folder.path() / "launcher").string();
    write_file_atomically(launcher, str("#!/bin/bash\n"
                                        "[ \"$1 $2 $3 $4\" = \"launch --machine_rank "
                                        "$SLURM_NODEID --no_config_file\" ] || exit 99\n"
                                        "kill -USR1 $PPID; kill -TERM $PPID\n"
                                        "codes=(",
                                        codes, "); exit ${codes[$SLURM_NODEID]}\n"));
    std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
    SlurmScript script = parsed({"--slurm", "--slurm_signal", signal, "train"});
    script.hasten = launcher;
    const std::string file = (folder.path() / "run.sbatch").string();
    write_file_atomically(file,
                          "scontrol() { [ \"$1\" = show ] && echo gpu1 || echo \"$*.\"; }\n"
                          "srun() { while [ \"$1\" != bash ]; do shift; done\n"
                          "  local worst=0 code SLURM_NODEID; export SLURM_NODEID\n"
                          "  for SLURM_NODEID in 1 0; do code=0; \"$@\" || code=$?\n"
                          "    [ $code -le $worst ] || worst=$code; done; return $worst; }\n" +
                              to_text(script));
    const std::string text = output_of(str("code=0; TMPDIR=", folder.path().string(),
                                           " SLURM_JOB_ID=7 SLURM_JOB_NODELIST=gpu1 ", "bash ",
                                           file, " || code=$?; [ $code = ", script_code, " ]"));
    // The script's own file is removed.
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
    return text;
  };
  CHECK(requeued("USR1@120", "138 138", 138) == "requeue 7.\n");
  CHECK(requeued("R:10@120", "138 138", 138) == "requeue 7.\n");
  CHECK(requeued("SIGUSR1", "138 138", 138) == "requeue 7.\n");
  CHECK(requeued("TERM", "143 143", 143) == "requeue 7.\n");
  CHECK(requeued("USR1@120", "143 143", 143).empty());  // scancel
  CHECK(requeued("TERM@60", "143 5", 5).empty());       // srun ends the others after a failure
  CHECK(requeued("USR1@120", "138 1", 1).empty());
  CHECK(requeued("USR1@120", "0 0", 0).empty());
  CHECK(requeued("USR1@120", "7 7", 7).empty());
}

TEST_CASE("Slurm script: a signal that launchers would not forward is refused") {
  const auto code = [](const std::string& signal) {
    return code_of([&] { to_text(parsed({"--slurm", "--slurm_signal", signal, "train"})); });
  };
  for (const char* signal : {"B:USR1@120", "KILL@60", "9", "USR3", "R:", "@120", "USR1@", "USR1@x",
                             "10x", "RB:USR1", "USR1@120@3"}) {
    CAPTURE(signal);
    CHECK(code(signal) == "config.bad-value");
  }
  for (const char* signal : {"HUP", "INT@1", "R:USR2@120", "12"}) {
    CAPTURE(signal);
    CHECK(code(signal) == "none");
  }
}

TEST_CASE("Slurm script: a flag overrides a variable in the launchers, too") {
  const std::vector<std::string> words = {"--slurm", "--num_machines", "2", "--max_restarts",
                                          "0",       "train"};
  const LaunchConfiguration run = parse_launch(words, {{"HASTEN_MAX_RESTARTS", "3"}});
  const std::string text = to_text(slurm_script(run, "hasten"));
  CHECK(text.find(" --max_restarts 0 ") != std::string::npos);
  const LaunchConfiguration empty =
      parse_launch({"--slurm", "--log_dir", "", "--rdzv_conf=", "--num_cpu_threads_per_process",
                    "none", "train"},
                   {{"HASTEN_LOG_DIR", "/l"},
                    {"HASTEN_RDZV_CONF", "join_timeout=5"},
                    {"HASTEN_NUM_CPU_THREADS_PER_PROCESS", "8"}});
  const std::string with_empty = to_text(slurm_script(empty, "hasten"));
  for (const char* option :
       {" --log_dir '' ", " --rdzv_conf '' ", " --num_cpu_threads_per_process none "}) {
    CAPTURE(option);
    CHECK(with_empty.find(option) != std::string::npos);
  }
}

TEST_CASE("Slurm script: values that would break one of Slurm's lines are refused") {
  for (const char* option :
       {"--slurm_time", "--slurm_partition", "--slurm_account", "--slurm_signal"}) {
    for (const char* value : {"a b", "a\n#SBATCH --uid=0", "'a'", "$HOME", "#x"}) {
      CAPTURE(value);
      CHECK(code_of([&] {
              to_text(parsed({"--slurm", option, value, "train"}));
            }) == "config.bad-value");
    }
  }
}

}  // namespace launch_slurm_script_test
