/*
 * TLS between two buffers in memory: the store's client at one end, OpenSSL's
 * server at the other.
 */
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "store/redis/redis_connection.h"
#include "test.h"

static struct redis_tls *client;
static SSL *server;
static struct idem_buffer wire;  /* from the client */
static struct idem_buffer heard; /* by the client */

static void certificate_make(SSL_CTX *ctx) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);

    CHECK(key != NULL && X509_set_version(cert, 2) == 1);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"h", -1, -1, 0);
    CHECK(X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1);
    CHECK(X509_sign(cert, key, EVP_sha256()) > 0);
    CHECK(SSL_CTX_use_certificate(ctx, cert) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* Passes the client's bytes to the server, which puts its plain text into out. */
static void to_server(struct idem_buffer *out) {
    char buf[4096];
    int n;

    if (wire.len > 0)
        CHECK_INT(BIO_write(SSL_get_rbio(server), wire.at, (int)wire.len), wire.len);
    wire.len = 0;
    while ((n = SSL_read(server, buf, sizeof(buf))) > 0)
        idem_buffer_put(out, buf, (size_t)n);
    CHECK_INT(SSL_get_error(server, n), SSL_ERROR_WANT_READ);
}

static void to_client(void) {
    const char *why = NULL;
    char buf[4096];
    int n;

    while ((n = BIO_read(SSL_get_wbio(server), buf, sizeof(buf))) > 0)
        if (!redis_tls_receive(client, buf, (size_t)n, &heard, &wire, &why)) {
            fprintf(stderr, "# %s\n", why);
            exit(1);
        }
}

static struct redis_tls_config *tls_config;
static SSL_CTX *server_ctx;

/* Only TLS up to 1.2 allows a renegotiation. */
static void connect_both(void) {
    struct redis_config config = {.tls = true};
    struct idem_buffer out = {0};
    struct idem_error err = {0};
    const char *why = NULL;

    CHECK_INT(redis_tls_config_new(&config, &tls_config, &err), 0);
    client = redis_tls_new(tls_config, "h");
    server_ctx = SSL_CTX_new(TLS_server_method());
    CHECK(client != NULL && SSL_CTX_set_max_proto_version(server_ctx, TLS1_2_VERSION) == 1);
    certificate_make(server_ctx);
    server = SSL_new(server_ctx);
    SSL_set_bio(server, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(server), -1);
    SSL_set_accept_state(server);
    CHECK(redis_tls_begin(client, &wire, &why));
    for (int i = 0; i < 10 && !redis_tls_ready(client); i++) {
        to_server(&out);
        to_client();
    }
    CHECK(redis_tls_ready(client) && out.len == 0);
}

static void disconnect_both(void) {
    SSL_free(server);
    SSL_CTX_free(server_ctx);
    redis_tls_free(client);
    redis_tls_config_free(tls_config);
    idem_buffer_release(&wire);
    idem_buffer_release(&heard);
}

#define LEN 300000

TEST(what_is_sent_while_the_handshake_is_done_anew_is_kept_and_sent_after_it) {
    struct idem_buffer got = {0};
    size_t at = 0, taken, size = 70000;
    const char *why = NULL;
    char *bytes = malloc(size), *moved;

    memset(bytes, 'a', size);
    connect_both();
    CHECK(SSL_renegotiate(server) == 1 && SSL_do_handshake(server) == 1);
    to_client(); /* the renegotiation begins, and waits for a reply now */
    CHECK(redis_tls_send(client, bytes, size, &wire, &taken, &why));
    CHECK_INT(taken, 0);
    /* More bytes come, and they lie at another address. */
    moved = malloc(LEN);
    memcpy(moved, bytes, size);
    memset(bytes, 'x', size);
    free(bytes);
    memset(moved + size, 'b', LEN - size);
    for (int i = 0; i < 100 && at < LEN; i++) {
        to_server(&got);
        to_client();
        CHECK(redis_tls_send(client, moved + at, LEN - at, &wire, &taken, &why));
        at += taken;
    }
    to_server(&got);
    CHECK_INT(at, LEN);
    CHECK_INT(got.len, LEN);
    CHECK(memcmp(got.at, moved, LEN) == 0);
    free(moved);
    idem_buffer_release(&got);
    disconnect_both();
}

TEST_MAIN
