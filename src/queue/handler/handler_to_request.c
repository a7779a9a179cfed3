/*
 * The header of a request to an endpoint: Idem's own fields, and the message's headers. No
 * header of a message may pass that the endpoint would take for Idem's, for the connection's,
 * or for credentials: the right to publish to a queue gives no other identity. Fails only
 * without memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_chars.h"
#include "protocol/record_key.h"
#include "queue/handler/handler_to.h"

/* Fields of the connection, of this request, or of its response, which libcurl must read; the
   last ones are for the operator to set, in the URL. */
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

struct request {
    struct curl_slist *list;
    bool failed;
};

static void request_add_line(struct request *request, const char *line) {
    struct curl_slist *list = request->failed ? NULL : curl_slist_append(request->list, line);

    if (list == NULL)
        request->failed = true;
    else
        request->list = list;
}

/* Values are checked before. An empty value needs the form `Name;`, since `Name:` removes the
   field. */
static void request_add_field(struct request *request, struct idem_http_text name,
                              struct idem_http_text value) {
    char *line;

    if (asprintf(&line, "%.*s%s%.*s", (int)name.len, name.at, value.len == 0 ? ";" : ": ",
                 (int)value.len, value.at) < 0) {
        request->failed = true;
        return;
    }
    request_add_line(request, line);
    free(line);
}

static struct idem_http_text bytes_text(struct idem_bytes bytes) {
    return (struct idem_http_text){(const char *)bytes.at, bytes.len};
}

static bool to_request_value_is_valid(struct idem_http_text value) {
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool to_request_field_may_pass(struct idem_http_text name) {
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

/* Adds the message's own headers while there is room; returns the number of the others. */
static size_t request_add_originals(struct request *request, const struct queue_message *message) {
    size_t n = 0, len = 0, omitted = 0;

    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *field = &message->headers[i];
        struct idem_http_text name = bytes_text(field->name);
        struct idem_http_text value = idem_http_trim(bytes_text(field->value));

        if (field->json || !to_request_field_may_pass(name) || !to_request_value_is_valid(value))
            continue;
        if (n == TO_ORIGINALS_MAX || name.len + value.len > TO_ORIGINALS_LEN - len) {
            omitted++;
            continue;
        }
        request_add_field(request, name, value);
        n++;
        len += name.len + value.len;
    }
    return omitted;
}

/* A fact about the body: the broker's property, else the header of that name. */
static bool request_add_property(struct request *request, const struct queue_message *message,
                                 const char *property, const char *name) {
    const struct queue_field *field = queue_property(message, property);
    struct idem_http_text value;

    if (field == NULL)
        field = queue_header(message, name);
    if (field == NULL || field->json)
        return false;
    value = idem_http_trim(bytes_text(field->value));
    if (value.len == 0 || value.len > 1024 || !to_request_value_is_valid(value))
        return false;
    request_add_field(request, (struct idem_http_text){name, strlen(name)}, value);
    return true;
}

/* A string of structured fields (RFC 9651): the key if it fits, else its hash. */
static void request_add_key(struct request *request, const struct queue_work *work) {
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
    request_add_line(request, line);
}

static void request_add_own(struct request *request, const struct queue_work *work,
                            const char *prefix) {
    char downstream[IDEM_HEX_LEN + 1], line[128];

    request_add_key(request, work);
    snprintf(line, sizeof(line), "Idem-Attempt: %" PRIu32, work->attempt);
    request_add_line(request, line);
    if (idem_downstream_key(prefix, work->hash, downstream) < 0) {
        request->failed = true;
        return;
    }
    snprintf(line, sizeof(line), "Idem-Downstream-Key: %s", downstream);
    request_add_line(request, line);
}

struct curl_slist *handler_to_request_headers(const struct queue_work *work, const char *prefix) {
    struct request request = {0};
    size_t omitted;
    char line[64];

    request_add_own(&request, work, prefix);
    request_add_line(&request, "Expect:");
    /* Without this line, libcurl would declare a form. */
    if (!request_add_property(&request, work->message, "content_type", "Content-Type"))
        request_add_line(&request, "Content-Type:");
    (void)request_add_property(&request, work->message, "content_encoding", "Content-Encoding");
    omitted = request_add_originals(&request, work->message);
    if (omitted > 0) {
        snprintf(line, sizeof(line), "Idem-Omitted: %zu", omitted);
        request_add_line(&request, line);
    }
    if (!request.failed)
        return request.list;
    curl_slist_free_all(request.list);
    return NULL;
}
