/*
 * Parses store URLs: scheme:rest?name=value&..., with %XX in each part. The text may contain a
 * password, so errors name only the scheme.
 */
#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hex.h"

const char *idem_url_http(const char *url, bool *ret_tls) {
    *ret_tls = strncasecmp(url, "https://", 8) == 0;
    return *ret_tls ? url + 8 : strncasecmp(url, "http://", 7) == 0 ? url + 7 : NULL;
}

bool idem_url_decode(char *text) {
    char *out = text;

    for (; *text != '\0'; text++) {
        if (*text == '%') {
            int byte = idem_hex_byte(text + 1);

            if (byte <= 0)
                return false;
            *out++ = (char)byte;
            text += 2;
        } else {
            *out++ = *text;
        }
    }
    *out = '\0';
    return true;
}

static size_t url_query_count(const char *query) {
    size_t n = 1;

    for (; *query != '\0'; query++)
        n += *query == '&';
    return n;
}

static int url_query_parse(struct idem_url *url, char *query, struct idem_error *err) {
    url->query = calloc(url_query_count(query), sizeof(*url->query));
    if (url->query == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL");
    while (query != NULL && *query != '\0') {
        char *name = strsep(&query, "&"), *value = strchr(name, '=');

        if (value == NULL || value == name)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "%s: options are written name=value, and "
                                  "parted by &",
                                  url->scheme);
        *value++ = '\0';
        if (!idem_url_decode(name) || !idem_url_decode(value))
            return idem_error_set(err, IDEM_E_INVALID,
                                  "%s: a %% in an option must be followed by "
                                  "two hex digits",
                                  url->scheme);
        for (size_t i = 0; i < url->query_n; i++)
            if (strcmp(url->query[i].name, name) == 0)
                return idem_error_set(err, IDEM_E_INVALID, "%s: option %s is given twice",
                                      url->scheme, name);
        url->query[url->query_n].name = name;
        url->query[url->query_n++].value = value;
    }
    return 0;
}

static int url_split(struct idem_url *url, struct idem_error *err) {
    char *colon = strchr(url->text, ':'), *query;

    if (colon == NULL || colon == url->text)
        return idem_error_set(err, IDEM_E_INVALID,
                              "a store is named by a URL such as "
                              "lmdb:/var/lib/idem; this one has no scheme");
    *colon = '\0';
    url->scheme = url->text;
    url->rest = colon + 1;
    query = strchr(url->rest, '?');
    if (query != NULL)
        *query++ = '\0';
    url->raw = strdup(url->rest);
    if (url->raw == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL");
    if (!idem_url_decode(url->rest))
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: a %% in the path must be followed by two "
                              "hex digits",
                              url->scheme);
    return query == NULL ? 0 : url_query_parse(url, query, err);
}

int idem_url_parse(const char *text, struct idem_url *ret, struct idem_error *err) {
    struct idem_url url = {.text = strdup(text)};
    int rc;

    if (url.text == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL");
    rc = url_split(&url, err);
    if (rc != 0) {
        idem_url_release(&url);
        return rc;
    }
    *ret = url;
    return 0;
}

void idem_url_release(struct idem_url *url) {
    if (url->raw != NULL)
        explicit_bzero(url->raw, strlen(url->raw));
    free(url->query);
    free(url->raw);
    free(url->text);
    *url = (struct idem_url){0};
}

const char *idem_url_get(const struct idem_url *url, const char *name) {
    for (size_t i = 0; i < url->query_n; i++)
        if (strcmp(url->query[i].name, name) == 0)
            return url->query[i].value;
    return NULL;
}

/* Finds the option db= in a query. Returns the length of the option, 0 if it is absent. */
static size_t url_query_db(const char *query, const char **ret) {
    for (const char *at = query; at != NULL; at = strchr(at + 1, '&'))
        if (idem_text_begins(at + 1, "db=")) {
            *ret = at + 1;
            return strcspn(at + 1, "&");
        }
    return 0;
}

const char *idem_url_public(const char *text, char *buf, size_t size) {
    const char *rest = strchr(text, ':'), *query = strchr(text, '?'), *at, *db = "";
    size_t scheme = rest == NULL ? 0 : (size_t)(rest - text) + 1;
    size_t len = query == NULL ? strlen(text) : (size_t)(query - text), db_len;

    if (len < scheme)
        scheme = 0;
    if (query != NULL && strchr(query, '@') != NULL) { /* the password may contain the ? */
        snprintf(buf, size, "%.*s", (int)scheme, text);
        return buf;
    }
    db_len = url_query_db(query, &db);
    at = memrchr(text + scheme, '@', len - scheme);
    snprintf(buf, size, "%.*s%s%.*s%s%.*s", at == NULL ? 0 : (int)scheme, text,
             at == NULL ? "" : "//", (int)(at == NULL ? len : len - (size_t)(at + 1 - text)),
             at == NULL ? text : at + 1, db_len == 0 ? "" : "?", (int)db_len, db);
    return buf;
}
