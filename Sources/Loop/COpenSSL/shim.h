#include <openssl/ssl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/x509v3.h>

// Macros that Swift cannot see.
static inline long meshpost_BIO_pending(BIO *bio) { return (long)BIO_ctrl_pending(bio); }
static inline int meshpost_SSL_set_host_name(SSL *ssl, const char *name) {
  return (int)SSL_set_tlsext_host_name(ssl, name);
}
static inline long meshpost_SSL_CTX_require_tls_1_2(SSL_CTX *context) {
  return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
}
static inline long meshpost_SSL_CTX_release_buffers(SSL_CTX *context) {
  return SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
}
// New sessions go to a callback, and are kept nowhere else.
static inline void meshpost_SSL_CTX_hand_out_sessions(SSL_CTX *context, int (*taken)(SSL *, SSL_SESSION *)) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, taken);
}
