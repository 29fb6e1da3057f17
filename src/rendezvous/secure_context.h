// File: rendezvous/secure_context.h (internal)
// Admits only processes of this job to a connection: TLS 1.3 with the job's token as pre-shared key
// (RFC 8446, section 2.2) and a fresh key exchange. Without the token nobody can join, read or
// replay. There are no certificates.
//
// Throws IoError "rendezvous.tls". Thread rule: once constructed, any thread may read it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/internal_api.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace hasten::rendezvous {

enum class Side { server, client };

// Returns 32 random bytes as hexadecimal digits.
HASTEN_INTERNAL_API std::string new_token();

class HASTEN_INTERNAL_API SecureContext {
 public:
  SecureContext(Side side, std::string_view token);
  SecureContext(const SecureContext&) = delete;  // TLS keeps the key's address.
  SecureContext& operator=(const SecureContext&) = delete;
  Side side() const { return side_; }
  ssl_ctx_st* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  Side side_;
  std::string key_;
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

}  // namespace hasten::rendezvous
