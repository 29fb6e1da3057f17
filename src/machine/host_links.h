// File: machine/host_links.h (internal)
// The rates of the links between the GPUs of hasten/machine/gpus.h and host memory: PCI Express
// with 16 lanes of the card's generation, or NVLink-C2C.
//
//   const double seconds = bytes / host_link_bytes_per_second(find_gpu("cuda:h200"));
//
// Units: bytes per second in each direction, without the overhead of packets. Sources: PCI Express
// with 8, 16 and 32 GT/s for each lane (128 of 130 bits are data); NVIDIA's data sheets for the
// generation and for GH200. Thread rule: constants.
#pragma once

#include "base/internal_api.h"
#include "hasten/machine/gpus.h"

namespace hasten {

HASTEN_INTERNAL_API double host_link_bytes_per_second(const Gpu& gpu);

}  // namespace hasten
