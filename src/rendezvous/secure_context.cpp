#include "rendezvous/secure_context.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <array>
#include <cstring>

#include "base/hexadecimal.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

constexpr std::string_view kIdentity = "hasten job";
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256, RFC 8446 B.4
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";

[[noreturn]] void fail(const char* what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  throw IoError("rendezvous.tls", {.what = what, .got = text});
}

std::string digest_of(std::string_view token) {
  std::string key(32, '\0');
  unsigned int size = 0;
  const std::string text = str("hasten job token", '\0', token);
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(key.data()), &size,
                 EVP_sha256(), nullptr) != 1)
    fail("computing a token's digest");
  return key;
}

// TLS expects the key in the form of an earlier session.
SSL_SESSION* session_of(SSL* connection) {
  const auto& key =
      *static_cast<const std::string*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(connection)));
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(connection, kCipher);
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* connection, const EVP_MD*, const unsigned char** identity, std::size_t* size,
              SSL_SESSION** session) {
  *session = session_of(connection);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  return *session != nullptr;
}

int find_key(SSL* connection, const unsigned char* identity, std::size_t size,
             SSL_SESSION** session) {
  const bool ours = size == kIdentity.size() && std::memcmp(identity, kIdentity.data(), size) == 0;
  *session = ours ? session_of(connection) : nullptr;
  // Without a session the handshake fails, because this side has no certificate.
  return 1;
}

}  // namespace

std::string new_token() {
  std::array<unsigned char, 32> bytes;
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) fail("generating random bytes for a token");
  return to_hex(bytes);
}

void SecureContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

SecureContext::SecureContext(Side side, std::string_view token)
    : side_(side),
      key_(digest_of(token)),
      context_(SSL_CTX_new(side == Side::server ? TLS_server_method() : TLS_client_method())) {
  SSL_CTX* const context = context_.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherName) != 1)
    fail("setting up TLS 1.3");
  SSL_CTX_set_app_data(context, &key_);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (side == Side::server) {
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  } else {
    // No certificate may replace the key, not even a signed one.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
  }
}

}  // namespace hasten::rendezvous
