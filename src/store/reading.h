/*
 * Reading the URL of a store that is a server: who asks, where it is, and options by a table. What
 * drivers have in common; each has its own config.
 */
#ifndef IDEM_STORE_READING_H
#define IDEM_STORE_READING_H

#include "store/store.h"

struct idem_reading {
    const struct idem_url *url;
    struct idem_error *err;
    void *config; /* the driver's */
};

/* IDEM_E_INVALID, with the scheme before the words. */
int idem_reading_refuse(struct idem_reading *r, const char *what);
int idem_reading_refuse_value(struct idem_reading *r, const char *name, const char *value,
                              const char *allowed);

/* An option's value into its field; 0 or a code. */
typedef int idem_read_fn(struct idem_reading *r, const char *name, const char *value, void *field);
idem_read_fn idem_read_text;     /* char *, the config's own */
idem_read_fn idem_read_secret;   /* char *, from the file of that name */
idem_read_fn idem_read_flag;     /* bool */
idem_read_fn idem_read_duration; /* int64_t, ms, from 1 ms to 1 h */

struct idem_url_option {
    const char *name;
    size_t offset; /* of the field in the config */
    idem_read_fn *read;
    const char *only; /* what it is of use with only; NULL: always */
};

/* Every option of the URL; `may` (NULL: all may) says whether one is of use here. */
int idem_read_options(struct idem_reading *r, const struct idem_url_option *options, size_t n,
                      bool (*may)(const struct idem_reading *r,
                                  const struct idem_url_option *option));

/* Decimal digits, at most `max`; -1: they are none. */
int idem_read_number(const char *text, long max, long *ret);

struct idem_host_name {
    char name[256];
    uint16_t port; /* 0: name is a path */
};
/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, as it stands in the URL; `port` is the default. */
int idem_read_host(struct idem_reading *r, char *text, uint16_t port, struct idem_host_name *ret);
int idem_read_socket(struct idem_reading *r, char *path, struct idem_host_name *ret);

/* What follows the scheme, apart: "//USER:PASSWORD@HOSTS/PATH", or "/PATH" of a socket. Each part
   is NULL where it is not said, and not decoded but for user and password. Cuts `rest`. */
struct idem_url_parts {
    char *user, *password, *hosts, *path, *socket;
};
int idem_read_parts(struct idem_reading *r, char *rest, const char *form,
                    struct idem_url_parts *ret);

/* Whether a ? in a password may have cut it: then no error may tell of the options. */
bool idem_reading_is_cut(const struct idem_reading *r);
extern const char idem_reading_cut[];

void idem_secret_free(char *secret);

#endif
