// Opens the TPU as a program does, and prints "opened tpu:0" or an error's code and text.
#include <torch/torch.h>

#include <iostream>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"

int main() {
  try {
    const hasten::Accelerator accelerator;
    std::cout << "opened " << accelerator.device() << '\n';
    // The result is not read, because a program that ends during a compilation must not crash.
    at::randn({8, 8}, accelerator.device())
        .exp()
        .add(1)
        .matmul(at::ones({8, 3}, accelerator.device()));
    return 0;
  } catch (const hasten::Error& error) {
    std::cout << error.code() << ": " << error.what() << '\n';
    return error.exit_code();
  }
}
