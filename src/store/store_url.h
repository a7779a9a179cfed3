/*
 * Reads the URL of a server, a store or a broker:
 *
 *     SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/PATH][?OPTIONS]
 *     SCHEME:/PATH/TO/SOCKET[?OPTIONS]
 *
 * Each kind of server has a table of its options, and a shape: where the parts go in its own
 * configuration.
 */
#ifndef IDEM_STORE_STORE_URL_H
#define IDEM_STORE_STORE_URL_H

#include "store/store.h"

struct idem_reading {
    const struct idem_url *url;
    struct idem_error *err;
    void *config; /* of its kind of server */
};

/* IDEM_E_INVALID; the text begins with the scheme. */
int idem_reading_refuse(struct idem_reading *r, const char *what);
int idem_reading_refuse_value(struct idem_reading *r, const char *name, const char *value,
                              const char *allowed);

/* Parses an option's value into its field. 0 or a code. */
typedef int idem_read_fn(struct idem_reading *r, const char *name, const char *value, void *field);
idem_read_fn idem_read_text;     /* char *, owned by the configuration */
idem_read_fn idem_read_once;     /* the same; neither empty nor also in the URL's own place */
idem_read_fn idem_read_secret;   /* char *, read from the file of that name */
idem_read_fn idem_read_flag;     /* bool */
idem_read_fn idem_read_duration; /* int64_t, ms, from 1 ms to 1 h */

struct idem_url_option {
    const char *name;
    size_t offset; /* of the field in the configuration */
    idem_read_fn *read;
    const char *only; /* the condition under which it applies, for error texts; NULL: always */
};

/* Reads every option of the URL. `may` returns false for an option that does not apply; NULL:
   all apply. */
int idem_read_options(struct idem_reading *r, const struct idem_url_option *options, size_t n,
                      bool (*may)(const struct idem_reading *r,
                                  const struct idem_url_option *option));

/* Decimal digits, at most `max`; -1: invalid. */
int idem_read_number(const char *text, long max, long *ret);

struct idem_host_name {
    char name[256];
    uint16_t port; /* 0: name is a path */
};

struct idem_url_shape {
    const char *form;     /* how it is written, for error texts */
    const char *password; /* the environment variable, read if the URL has no password */
    bool user_needs_password;
    uint16_t port; /* the default */
    size_t hosts_max;
    const struct idem_url_option *options;
    size_t options_n;
    /* False for an option with `only` that does not apply. */
    bool (*may)(const struct idem_reading *r, const struct idem_url_option *option);
    int (*socket)(struct idem_reading *r); /* checks that a socket may be named; NULL: none may */
    int (*path)(struct idem_reading *r, char *path); /* not decoded; NULL: there is none */
    int (*check)(struct idem_reading *r);            /* everything was read; may be NULL */

    /* Offsets in the configuration. A socket is one host with port 0. */
    size_t at_hosts, at_hosts_n, at_user, at_password, at_name, at_tls_cert, at_tls_key;
    const size_t *texts; /* of every text that it owns */
    size_t texts_n;
};

/* The members of a shape that follow from the fields of a configuration and from its tables
   `options` and `texts`. */
#define IDEM_URL_FIELDS(config)                                                                    \
    .options = options, .options_n = sizeof(options) / sizeof(options[0]), .texts = texts,         \
    .texts_n = sizeof(texts) / sizeof(texts[0]), .at_hosts = offsetof(config, hosts),              \
    .at_hosts_n = offsetof(config, hosts_n), .at_user = offsetof(config, user),                    \
    .at_password = offsetof(config, password), .at_name = offsetof(config, name),                  \
    .at_tls_cert = offsetof(config, tls_cert), .at_tls_key = offsetof(config, tls_key)

/* On failure the configuration is released. */
int idem_read_url(const struct idem_url *url, const struct idem_url_shape *shape, void *config,
                  struct idem_error *err);
void idem_texts_free(const struct idem_url_shape *shape, void *config);
/* Replaces each text of a copied configuration by its own copy. False: no memory; it is released.
 */
bool idem_texts_copy(const struct idem_url_shape *shape, void *config);

#endif
