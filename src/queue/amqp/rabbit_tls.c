/*
 * TLS by librabbitmq's own layer, with changes in its context. By default the layer would
 * trust no authority, ask for a key's pass phrase at the terminal, check names but not
 * addresses, and hide why a certificate is refused.
 */
#include <amqp_ssl_socket.h>
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "queue/amqp/rabbit.h"

static _Thread_local int refused; /* X509_V_ERR_... of this thread's last handshake */

static int tls_check_certificate(int ok, X509_STORE_CTX *store) {
    if (ok == 0)
        refused = X509_STORE_CTX_get_error(store);
    return ok;
}

/* There is no terminal to ask for a pass phrase. */
static int tls_refuse_passphrase(char *buf, int size, int writing, void *data) {
    (void)buf;
    (void)size;
    (void)writing;
    (void)data;
    return -1;
}

/* Sets the name or address that the certificate must have. */
static bool tls_expect_name(SSL_CTX *ctx, const char *name) {
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
    unsigned char address[16];

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1;
}

static const char *tls_load_files(SSL_CTX *ctx, const struct rabbit_config *config) {
    if (config->tls_ca != NULL ? SSL_CTX_load_verify_locations(ctx, config->tls_ca, NULL) != 1
                               : SSL_CTX_set_default_verify_paths(ctx) != 1)
        return "tls_ca: the file of authorities cannot be read";
    if (config->tls_cert != NULL && SSL_CTX_use_certificate_chain_file(ctx, config->tls_cert) != 1)
        return "tls_cert: the certificate cannot be read";
    if (config->tls_key != NULL &&
        SSL_CTX_use_PrivateKey_file(ctx, config->tls_key, SSL_FILETYPE_PEM) != 1)
        return "tls_key: the key cannot be read (it must have no pass phrase), or is not the "
               "certificate's";
    return NULL;
}

bool rabbit_tls_prepare(struct rabbit_session *s, amqp_socket_t *socket, const char *host) {
    const struct rabbit_config *config = s->config;
    SSL_CTX *ctx = amqp_ssl_socket_get_context(socket);
    const char *what;

    refused = X509_V_OK;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ctx, tls_refuse_passphrase);
    SSL_CTX_set_verify(ctx, config->tls_verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       config->tls_verify ? tls_check_certificate : NULL);
    amqp_ssl_socket_set_verify_peer(socket, config->tls_verify);
    amqp_ssl_socket_set_verify_hostname(socket, 0); /* the handshake checks it, see above */
    what = tls_load_files(ctx, config);
    if (what == NULL && config->tls_verify &&
        !tls_expect_name(ctx, config->tls_name != NULL ? config->tls_name : host))
        what = "no memory for TLS";
    if (what != NULL)
        rabbit_session_fail(s, "%s: %s", what,
                            ERR_reason_error_string(ERR_peek_last_error()) ?: "?");
    ERR_clear_error();
    return what == NULL;
}

const char *rabbit_tls_why(void) {
    const char *why = ERR_reason_error_string(ERR_peek_last_error());

    if (refused != X509_V_OK)
        return X509_verify_cert_error_string(refused);
    return why != NULL ? why : "the connection was closed";
}
