/*
 * Any bytes as a form with files: the type is up to the first bar, the body
 * follows, in which a bar stands for CR LF. The parts, joined with the
 * delimiter, are the body again, in whatever pieces it was parsed; and a field
 * that is found occurs in the body.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct joined {
    const struct idem_http_delimiter *delimiter;
    char *text;
    size_t len, room, parts;
};

static void join(void *data, const void *bytes, size_t len) {
    struct joined *to = data;

    if (bytes == NULL) {
        bytes = to->delimiter->text;
        len = to->delimiter->len;
        to->parts++;
    }
    assert(len > 0 && len <= to->room - to->len);
    memcpy(to->text + to->len, bytes, len);
    to->len += len;
}

static size_t check_split(const struct idem_http_delimiter *delimiter, struct idem_http_text body,
                          size_t piece) {
    struct joined to = {delimiter, malloc(body.len + 2), 0, body.len + 2, 0};
    struct idem_http_split split;

    idem_http_split_begin(&split, delimiter, join, &to);
    for (size_t at = 0; at < body.len; at += piece)
        idem_http_split_add(&split, body.at + at, body.len - at < piece ? body.len - at : piece);
    idem_http_split_end(&split);
    assert(to.len == body.len + 2 && memcmp(to.text, "\r\n", 2) == 0);
    assert(memcmp(to.text + 2, body.at, body.len) == 0);
    free(to.text);
    return to.parts;
}

/* The caller frees it. */
static struct idem_http_text body_of(const char *at, size_t len) {
    char *text = malloc(2 * len + 1);
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (at[i] == '|')
            text[n++] = '\r';
        text[n++] = at[i] == '|' ? '\n' : at[i];
    }
    return (struct idem_http_text){text, n};
}

static void check_form(const struct idem_http_delimiter *delimiter, struct idem_http_text body) {
    size_t len = 999, parts = check_split(delimiter, body, body.len + 1);
    enum idem_http_found found;
    char out[16];

    for (size_t piece = 1; piece < 6; piece++)
        assert(check_split(delimiter, body, piece) == parts);
    found =
        idem_http_multipart_find(body, delimiter, IDEM_HTTP_TEXT("key"), out, sizeof(out), &len);
    assert((found == IDEM_HTTP_ONCE) == (len != 999));
    if (found == IDEM_HTTP_ONCE) {
        assert(len <= sizeof(out) && parts > 0);
        assert(len == 0 || memmem(body.at, body.len, out, len) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *bar = size == 0 ? NULL : memchr(at, '|', size);
    struct idem_http_text type = {at, bar == NULL ? size : (size_t)(bar - at)}, body;
    struct idem_http_delimiter delimiter;

    if (!idem_http_delimiter_read(type, &delimiter))
        return 0;
    assert(delimiter.len > 4 && delimiter.len <= sizeof(delimiter.text));
    body = body_of(bar == NULL ? "" : bar + 1, bar == NULL ? 0 : size - type.len - 1);
    check_form(&delimiter, body);
    free((char *)body.at);
    return 0;
}
