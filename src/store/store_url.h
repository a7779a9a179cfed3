/*
 * Reads the URL of a store that is a server: user, location, and options by a table. Drivers
 * share this; each has its own configuration.
 */
#ifndef IDEM_STORE_STORE_URL_H
#define IDEM_STORE_STORE_URL_H

#include "store/store.h"

struct idem_reading {
    const struct idem_url *url;
    struct idem_error *err;
    void *config; /* the driver's */
};

/* IDEM_E_INVALID; the text begins with the scheme. */
int idem_reading_refuse(struct idem_reading *r, const char *what);
int idem_reading_refuse_value(struct idem_reading *r, const char *name, const char *value,
                              const char *allowed);

/* Parses an option's value into its field. 0 or a code. */
typedef int idem_read_fn(struct idem_reading *r, const char *name, const char *value, void *field);
idem_read_fn idem_read_text;     /* char *, owned by the configuration */
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
/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, as in the URL; `port` is the default. */
int idem_read_host(struct idem_reading *r, char *text, uint16_t port, struct idem_host_name *ret);
int idem_read_socket(struct idem_reading *r, char *path, struct idem_host_name *ret);

/* The parts behind the scheme: "//USER:PASSWORD@HOSTS/PATH", or "/PATH" of a socket. A missing
   part is NULL. Only user and password are decoded. Cuts `rest`. */
struct idem_url_parts {
    char *user, *password, *hosts, *path, *socket;
};
int idem_read_parts(struct idem_reading *r, char *rest, const char *form,
                    struct idem_url_parts *ret);

/* True if a ? in a password may have cut it: then no error may show the options. */
bool idem_reading_is_cut(const struct idem_reading *r);
extern const char idem_reading_cut[];

void idem_secret_free(char *secret);

#endif
