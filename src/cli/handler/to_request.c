/*
 * The header of a request to an endpoint: what Idem says, and what the message
 * says, of which nothing may pass that the endpoint would take for ours, for the
 * connection's, or for somebody's credentials: who may publish to a queue is
 * nobody on that account. Fails only without memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/handler/to.h"
#include "core/hash.h"
#include "http/chars.h"

/* Of the connection, of this request, or of its answer, which is ours to read; the last are the
   operator's to give, in the URL. */
static const char *const never[] = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
    "http2-settings",
    "content-type",
    "content-encoding",
    "cookie",
    "cookie2",
    "set-cookie",
    "authorization",
    NULL,
};
static const char *const never_begin[] = {"idem-", "idempoten", "proxy-", NULL};

struct making {
    struct curl_slist *list;
    bool failed;
};

static void line_add(struct making *m, const char *line) {
    struct curl_slist *list = m->failed ? NULL : curl_slist_append(m->list, line);

    if (list == NULL)
        m->failed = true;
    else
        m->list = list;
}

/* Values are checked before. One that is empty has another form, since `Name:` takes the field
   out. */
static void field_add(struct making *m, struct idem_http_text name, struct idem_http_text value) {
    char *line;

    if (asprintf(&line, "%.*s%s%.*s", (int)name.len, name.at, value.len == 0 ? ";" : ": ",
                 (int)value.len, value.at) < 0) {
        m->failed = true;
        return;
    }
    line_add(m, line);
    free(line);
}

static struct idem_http_text text_of(struct idem_bytes bytes) {
    return (struct idem_http_text){(const char *)bytes.at, bytes.len};
}

static bool is_value(struct idem_http_text value) {
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool may_pass(struct idem_http_text name) {
    if (!idem_http_is_token(name))
        return false;
    for (size_t i = 0; never[i] != NULL; i++)
        if (idem_http_same(name, (struct idem_http_text){never[i], strlen(never[i])}))
            return false;
    for (size_t i = 0; never_begin[i] != NULL; i++) {
        struct idem_http_text begin = {never_begin[i], strlen(never_begin[i])};

        if (name.len >= begin.len &&
            idem_http_same((struct idem_http_text){name.at, begin.len}, begin))
            return false;
    }
    return true;
}

/* The message's own, as far as there is room; how many had none. */
static size_t originals_add(struct making *m, const struct queue_message *message) {
    size_t n = 0, len = 0, omitted = 0;

    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *field = &message->headers[i];
        struct idem_http_text name = text_of(field->name);
        struct idem_http_text value = idem_http_trim(text_of(field->value));

        if (field->json || !may_pass(name) || !is_value(value))
            continue;
        if (n == TO_ORIGINALS_MAX || name.len + value.len > TO_ORIGINALS_LEN - len) {
            omitted++;
            continue;
        }
        field_add(m, name, value);
        n++;
        len += name.len + value.len;
    }
    return omitted;
}

/* What it is: as the broker knows it, else as a header of that name has it. */
static bool about_add(struct making *m, const struct queue_message *message, const char *property,
                      const char *name) {
    const struct queue_field *field = queue_property(message, property);
    struct idem_http_text value;

    if (field == NULL)
        field = queue_header(message, name);
    if (field == NULL || field->json)
        return false;
    value = idem_http_trim(text_of(field->value));
    if (value.len == 0 || value.len > 1024 || !is_value(value))
        return false;
    field_add(m, (struct idem_http_text){name, strlen(name)}, value);
    return true;
}

/* A string of structured fields (RFC 9651): the key if it can be one, else its hash. */
static void key_add(struct making *m, const struct queue_work *work) {
    char line[2 * IDEM_HTTP_KEY_MAX + 32];
    const char *key = work->key;
    size_t len = work->key_len, n;
    bool fits = len > 0 && len <= IDEM_HTTP_KEY_MAX;

    for (size_t i = 0; fits && i < len; i++)
        fits = idem_is_print(key[i]);
    if (!fits) {
        key = work->hash;
        len = strlen(work->hash);
    }
    n = (size_t)snprintf(line, sizeof(line), "Idempotency-Key: \"");
    for (size_t i = 0; i < len && n < sizeof(line) - 3; i++) {
        if (key[i] == '"' || key[i] == '\\')
            line[n++] = '\\';
        line[n++] = key[i];
    }
    line[n++] = '"';
    line[n] = '\0';
    line_add(m, line);
}

static void ours_add(struct making *m, const struct queue_work *work, const char *prefix) {
    char downstream[IDEM_HEX_LEN + 1], line[128];

    key_add(m, work);
    snprintf(line, sizeof(line), "Idem-Attempt: %" PRIu32, work->attempt);
    line_add(m, line);
    if (idem_downstream_key(prefix, work->hash, downstream) < 0) {
        m->failed = true;
        return;
    }
    snprintf(line, sizeof(line), "Idem-Downstream-Key: %s", downstream);
    line_add(m, line);
}

struct curl_slist *to_request_headers(const struct queue_work *work, const char *prefix) {
    struct making m = {0};
    size_t omitted;
    char line[64];

    ours_add(&m, work, prefix);
    line_add(&m, "Expect:");
    /* Without it, libcurl would say that it is a form. */
    if (!about_add(&m, work->message, "content_type", "Content-Type"))
        line_add(&m, "Content-Type:");
    (void)about_add(&m, work->message, "content_encoding", "Content-Encoding");
    omitted = originals_add(&m, work->message);
    if (omitted > 0) {
        snprintf(line, sizeof(line), "Idem-Omitted: %zu", omitted);
        line_add(&m, line);
    }
    if (!m.failed)
        return m.list;
    curl_slist_free_all(m.list);
    return NULL;
}
