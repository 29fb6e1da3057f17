// File: cli/torch_commands.h
// The commands of hasten-torch, each in a separate file. They take main's argc and argv (argv[1]
// is the command's name) and return the exit code.
#pragma once

namespace hasten::cli {

int train(int argc, char** argv);
int estimate(int argc, char** argv);
int generate(int argc, char** argv);
int plan(int argc, char** argv);
int inspect(int argc, char** argv);
int convert(int argc, char** argv);
int diff(int argc, char** argv);
int merge_weights(int argc, char** argv);
int test_rank(int argc, char** argv);  // one of the ranks that `hasten test` starts
int test_hang(int argc, char** argv);  // one of two ranks; rank 1 hangs

}  // namespace hasten::cli
