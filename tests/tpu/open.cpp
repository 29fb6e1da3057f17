// Opens the TPU as a program does, and says how that went: "opened tpu:0", or an error's code and
// text.
#include <torch/torch.h>

#include <iostream>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"

int main() {
  try {
    const hasten::Accelerator accelerator;
    std::cout << "opened " << accelerator.device() << '\n';
    // Left unread: what is still being compiled when the program ends must not bring it down.
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
