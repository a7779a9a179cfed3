/*
 * TLS over bytes in memory: redis_connection.c owns the socket, and passes bytes in and out.
 * OpenSSL never sees a descriptor, so it neither raises SIGPIPE nor blocks.
 *
 * A certificate for another host, or by an untrusted authority, breaks the connection, unless
 * tls_verify=no is set.
 */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_connection.h"

struct redis_tls_config {
    SSL_CTX *ctx;
    bool verify;
    const char *name; /* the config's, or NULL */
};

struct redis_tls {
    SSL *ssl;
    BIO *in, *out; /* owned by `ssl` */
    bool ready;
    char why[160];
};

/* There is no user to ask: OpenSSL would block the loop at the terminal. */
static int tls_no_passphrase(char *buf, int size, int writing, void *data) {
    (void)buf;
    (void)size;
    (void)writing;
    (void)data;
    return -1;
}

static int tls_load_files(SSL_CTX *ctx, const struct redis_config *config, struct idem_error *err) {
    const char *what = NULL;

    if (config->tls_ca != NULL ? SSL_CTX_load_verify_locations(ctx, config->tls_ca, NULL) != 1
                               : SSL_CTX_set_default_verify_paths(ctx) != 1)
        what = "tls_ca: the file of authorities cannot be read";
    else if (config->tls_cert != NULL &&
             SSL_CTX_use_certificate_chain_file(ctx, config->tls_cert) != 1)
        what = "tls_cert: the certificate cannot be read";
    else if (config->tls_key != NULL &&
             SSL_CTX_use_PrivateKey_file(ctx, config->tls_key, SSL_FILETYPE_PEM) != 1)
        what = "tls_key: the key cannot be read (it must have no pass phrase), or is not the "
               "certificate's";
    if (what == NULL)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "rediss: %s: %s", what,
                          ERR_reason_error_string(ERR_peek_last_error()) ?: "?");
}

int redis_tls_config_new(const struct redis_config *config, struct redis_tls_config **ret,
                         struct idem_error *err) {
    struct redis_tls_config *made;
    int rc;

    *ret = NULL;
    if (!config->tls)
        return 0;
    made = calloc(1, sizeof(*made));
    if (made != NULL)
        made->ctx = SSL_CTX_new(TLS_client_method());
    if (made == NULL || made->ctx == NULL) {
        free(made);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for TLS");
    }
    made->verify = config->tls_verify;
    made->name = config->tls_name;
    SSL_CTX_set_min_proto_version(made->ctx, TLS1_2_VERSION);
    /* A write is repeated from a buffer that may have grown, and moved, in between. */
    SSL_CTX_set_mode(made->ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(made->ctx, made->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_default_passwd_cb(made->ctx, tls_no_passphrase);
    ERR_clear_error();
    rc = tls_load_files(made->ctx, config, err);
    ERR_clear_error();
    if (rc != 0) {
        redis_tls_config_free(made);
        return rc;
    }
    *ret = made;
    return 0;
}

void redis_tls_config_free(struct redis_tls_config *config) {
    if (config == NULL)
        return;
    SSL_CTX_free(config->ctx);
    free(config);
}

/* Sets the name that the certificate must have. */
static bool tls_expect_name(SSL *ssl, const struct redis_tls_config *config, const char *host) {
    const char *name = config->name != NULL ? config->name : host;
    unsigned char address[16];
    bool literal =
        inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;

    if (!literal && SSL_set_tlsext_host_name(ssl, name) != 1)
        return false;
    if (!config->verify)
        return true;
    if (literal)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1;
}

struct redis_tls *redis_tls_new(struct redis_tls_config *config, const char *host) {
    struct redis_tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL)
        return NULL;
    tls->ssl = SSL_new(config->ctx);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL ||
        !tls_expect_name(tls->ssl, config, host)) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    BIO_set_mem_eof_return(tls->in, -1);
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_connect_state(tls->ssl);
    return tls;
}

void redis_tls_free(struct redis_tls *tls) {
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

static void tls_move_out(struct redis_tls *tls, struct idem_buffer *out) {
    char buf[4096];
    int n;

    while ((n = BIO_read(tls->out, buf, sizeof(buf))) > 0)
        idem_buffer_put(out, buf, (size_t)n);
}

/* True unless the session failed; needing more bytes is not a failure. */
static bool tls_check_result(struct redis_tls *tls, int rc, const char **ret_why) {
    long verified = SSL_get_verify_result(tls->ssl);
    int error = SSL_get_error(tls->ssl, rc);
    const char *why;

    if (rc > 0 || error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return true;
    if (error == SSL_ERROR_ZERO_RETURN)
        why = "the server has ended it";
    else if (verified != X509_V_OK && SSL_get_verify_mode(tls->ssl) != SSL_VERIFY_NONE)
        why = X509_verify_cert_error_string(verified);
    else
        why = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(tls->why, sizeof(tls->why), "TLS: %s", why == NULL ? "broken" : why);
    *ret_why = tls->why;
    ERR_clear_error();
    return false;
}

bool redis_tls_begin(struct redis_tls *tls, struct idem_buffer *out, const char **ret_why) {
    int rc;

    ERR_clear_error();
    rc = SSL_do_handshake(tls->ssl);
    tls_move_out(tls, out);
    tls->ready = rc == 1;
    return tls_check_result(tls, rc, ret_why);
}

bool redis_tls_ready(const struct redis_tls *tls) {
    return tls->ready;
}

bool redis_tls_receive(struct redis_tls *tls, const char *bytes, size_t len,
                       struct idem_buffer *plain, struct idem_buffer *out, const char **ret_why) {
    char buf[16384];
    int rc;

    ERR_clear_error();
    if (len > 0 && BIO_write(tls->in, bytes, (int)len) != (int)len) {
        *ret_why = "TLS: no memory";
        return false;
    }
    if (!tls->ready && (!redis_tls_begin(tls, out, ret_why) || !tls->ready))
        return *ret_why == NULL;
    while ((rc = SSL_read(tls->ssl, buf, sizeof(buf))) > 0)
        idem_buffer_put(plain, buf, (size_t)rc);
    tls_move_out(tls, out);
    return tls_check_result(tls, rc, ret_why);
}

/* During a renegotiation OpenSSL must read before it can write. */
bool redis_tls_send(struct redis_tls *tls, const char *bytes, size_t len, struct idem_buffer *out,
                    size_t *ret_taken, const char **ret_why) {
    size_t taken = 0, n;
    int rc = 1;

    ERR_clear_error();
    while (taken < len && rc > 0) {
        n = len - taken > 65536 ? 65536 : len - taken;
        rc = SSL_write(tls->ssl, bytes + taken, (int)n);
        if (rc > 0)
            taken += (size_t)rc;
        tls_move_out(tls, out);
    }
    *ret_taken = taken;
    return tls_check_result(tls, rc, ret_why);
}
