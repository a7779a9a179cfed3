/*
 * Any bytes as a stored response: refused whole, or read within their bounds,
 * and then written again as the same bytes. Any bytes as a header's name: kept
 * only if it is not refused.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(const struct idem_http_answer *answer, const uint8_t *data, size_t size) {
    static struct idem_http_header headers[IDEM_HTTP_HEADERS_MAX];
    bool decoded = answer->decoded.kind != IDEM_HTTP_DECODED_UNKNOWN;
    char text[IDEM_HTTP_DECODED_TEXT];
    struct idem_http_text rest = answer->headers;
    struct idem_http_answer_out out;
    unsigned char *room = malloc(size);
    size_t n = 0;

    if (decoded)
        headers[n++] = idem_http_decoded_print(&answer->decoded, text);
    while (idem_http_answer_next(&rest, &headers[n])) {
        assert(idem_http_header_refused(headers[n].name) == NULL);
        assert(memchr(headers[n].value.at, '\n', headers[n].value.len) == NULL);
        n++;
    }
    assert(n == answer->headers_n + decoded && rest.len == 0);
    assert(idem_http_answer_size(headers, n, answer->body.len) == size);
    assert(idem_http_answer_begin(&out, room, size, answer->status, headers, n) == 0);
    assert(idem_http_answer_append(&out, answer->body.at, answer->body.len) == 0);
    assert(idem_http_answer_end(&out) == size && memcmp(room, data, size) == 0);
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_http_text name = {(const char *)data, size};
    struct idem_http_answer answer;

    if (idem_http_answer_read(data, size, &answer) == 0)
        write_again(&answer, data, size);
    assert(!idem_http_header_kept(name, name, &name, 1));
    assert(idem_http_header_kept(name, (struct idem_http_text){NULL, 0}, &name, 1) ==
           (idem_http_header_refused(name) == NULL));
    return 0;
}
