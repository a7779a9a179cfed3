/*
 * Reads the head of a request (RFC 9112). An odd value in a field that is not used here is ignored;
 * an odd first line, an odd shape of the lines, and a second Host are refused
 * (fuzz/metrics_request_fuzz.c).
 */
#include <string.h>

#include "cli/consume/metrics_server.h"
#include "http/http_host.h"

/* Takes the next line without its end, CR LF or LF; false if the line is not complete. */
static bool http_text_next_line(struct idem_http_text *rest, struct idem_http_text *ret) {
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

static bool http_text_is_visible(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] <= ' ' || text.at[i] == 0x7f)
            return false;
    return text.len > 0;
}

/* Takes the text up to a blank, and skips the blank; false if there is no blank. */
static bool http_text_next_word(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memchr(rest->at, ' ', rest->len);

    if (end == NULL)
        return false;
    *ret = (struct idem_http_text){rest->at, (size_t)(end - rest->at)};
    *rest = (struct idem_http_text){end + 1, rest->len - ret->len - 1};
    return true;
}

static bool metrics_request_first_line_read(struct idem_http_text line,
                                            struct metrics_request *ret) {
    struct idem_http_text target;
    const char *mark;

    if (!http_text_next_word(&line, &ret->method) || !http_text_next_word(&line, &target))
        return false;
    if (!idem_http_is_token(ret->method) || !http_text_is_visible(target) || target.at[0] != '/')
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

/* A second Host is refused: a proxy before this server might have checked the other one. */
static bool metrics_request_host_read(struct idem_http_text value, struct metrics_request *ret) {
    return ret->host.at == NULL && idem_http_host_read(value, &ret->host);
}

static bool metrics_request_field_read(struct idem_http_text line, struct metrics_request *ret) {
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
    if (idem_http_same(name, IDEM_HTTP_TEXT("Host")))
        return metrics_request_host_read(idem_http_trim(value), ret);
    return true;
}

int metrics_request_read(const char *text, size_t len, struct metrics_request *ret) {
    struct idem_http_text rest = {text, len}, line;
    struct metrics_request request = {0};

    idem_http_accept_init(&request.accept);
    if (!http_text_next_line(&rest, &line))
        return 0;
    if (!metrics_request_first_line_read(line, &request))
        return -1;
    for (;;) {
        if (!http_text_next_line(&rest, &line))
            return 0;
        if (line.len == 0)
            break;
        if (!metrics_request_field_read(line, &request))
            return -1;
    }
    *ret = request;
    return 1;
}
