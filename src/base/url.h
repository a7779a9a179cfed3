/*
 * URLs of stores and brokers: SCHEME:REST?NAME=VALUE&...
 */
#ifndef IDEM_BASE_URL_H
#define IDEM_BASE_URL_H

#include "idem.h"

struct idem_url {
    char *scheme, *rest; /* rest: the part after the colon, without the query */
    char *raw;           /* `rest` before %XX was decoded: its parts may contain the separators */
    struct {
        char *name, *value;
    } * query;
    size_t query_n;
    char *text; /* backing memory of the strings above */
};

/* The part behind "http://" or "https://", in any case; NULL: the URL begins with neither. */
const char *idem_url_http(const char *url, bool *ret_tls);

int idem_url_parse(const char *text, struct idem_url *ret, struct idem_error *err);
void idem_url_release(struct idem_url *url);
/* Decodes %XX in place; false on an invalid escape or an escaped NUL. */
bool idem_url_decode(char *text);
/* Writes the part of a URL that may be shown: no user, no password, and of the options only db=,
   which distinguishes the stores of one server. If an @ follows a ?, only the scheme is shown,
   because the password may contain the ?. Returns buf. */
const char *idem_url_public(const char *text, char *buf, size_t size);
const char *idem_url_get(const struct idem_url *url, const char *name); /* NULL: absent */

#endif
