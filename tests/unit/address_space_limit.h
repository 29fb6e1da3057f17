// File: unit/address_space_limit.h
// A process that has only little memory left: its address space may grow by `more` bytes.
//
//   const AddressSpaceLimit limit(32 << 20);
//   CHECK_THROWS(at::empty(64 << 20, at::kByte));
//
// Thread rule: one such object at a time.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace hasten {

class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::size_t more) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = used_bytes() + more;
    setrlimit(RLIMIT_AS, &limit);
  }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  // The size of this process's address space.
  static std::size_t used_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

  rlimit before_{};
};

}  // namespace hasten
