/*
 * Reads a request's head (RFC 9112). What is odd in a field that nobody asks for is left alone;
 * what is odd in the first line, or in the shape of the lines, is refused
 * (fuzz/metrics_request_fuzz.c).
 */
#include <string.h>

#include "cli/metrics.h"

/* The next line without its end, CR LF or LF; false: it is not whole. */
static bool line_next(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memchr(rest->at, '\n', rest->len);
    size_t len;

    if (end == NULL)
        return false;
    len = (size_t)(end - rest->at);
    *ret = (struct idem_http_text){rest->at, len};
    if (len > 0 && end[-1] == '\r')
        ret->len--;
    *rest = (struct idem_http_text){end + 1, rest->len - len - 1};
    return true;
}

static bool is_visible(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] <= ' ' || text.at[i] == 0x7f)
            return false;
    return text.len > 0;
}

/* Up to a blank, which is left out; false: there is none. */
static bool word_next(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memchr(rest->at, ' ', rest->len);

    if (end == NULL)
        return false;
    *ret = (struct idem_http_text){rest->at, (size_t)(end - rest->at)};
    *rest = (struct idem_http_text){end + 1, rest->len - ret->len - 1};
    return true;
}

static bool first_read(struct idem_http_text line, struct metrics_request *ret) {
    struct idem_http_text target;
    const char *mark;

    if (!word_next(&line, &ret->method) || !word_next(&line, &target))
        return false;
    if (!idem_http_is_token(ret->method) || !is_visible(target) || target.at[0] != '/')
        return false;
    if (line.len != 8 || memcmp(line.at, "HTTP/1.", 7) != 0 ||
        (line.at[7] != '0' && line.at[7] != '1'))
        return false;
    mark = memchr(target.at, '?', target.len);
    ret->path = target;
    ret->query = (struct idem_http_text){"", 0};
    if (mark != NULL) {
        ret->path.len = (size_t)(mark - target.at);
        ret->query = (struct idem_http_text){mark + 1, target.len - ret->path.len - 1};
    }
    return true;
}

static bool field_read(struct idem_http_text line, struct metrics_request *ret) {
    const char *colon = memchr(line.at, ':', line.len);
    struct idem_http_text name, value;

    if (colon == NULL)
        return false;
    name = (struct idem_http_text){line.at, (size_t)(colon - line.at)};
    value = (struct idem_http_text){colon + 1, line.len - name.len - 1};
    if (!idem_http_is_token(name))
        return false;
    if (idem_http_same(name, IDEM_HTTP_TEXT("Accept")))
        idem_http_accept_add(&ret->accept, idem_http_trim(value));
    return true;
}

int metrics_request_read(const char *text, size_t len, struct metrics_request *ret) {
    struct idem_http_text rest = {text, len}, line;
    struct metrics_request request;

    idem_http_accept_init(&request.accept);
    if (!line_next(&rest, &line))
        return 0;
    if (!first_read(line, &request))
        return -1;
    for (;;) {
        if (!line_next(&rest, &line))
            return 0;
        if (line.len == 0)
            break;
        if (!field_read(line, &request))
            return -1;
    }
    *ret = request;
    return 1;
}
