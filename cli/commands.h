// File: cli/commands.h
// The commands of hasten-torch, one file each; argv as main has it, argv[1] being the command's
// name.
#pragma once

namespace hasten::cli {

int train(int argc, char** argv);
int estimate(int argc, char** argv);
int test_rank(int argc, char** argv);  // one of the processes that `hasten test` starts
int test_hang(int argc, char** argv);  // one of two of which one keeps the other waiting

}  // namespace hasten::cli
