// See the README beside this folder: names, never made here.
#pragma once

namespace gloo::transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
