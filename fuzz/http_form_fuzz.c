/*
 * Any bytes as a form: the name is up to the first NUL. The value found is the
 * decoded value of the one pair with that name, and never longer than its
 * buffer.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t name_len = strnlen((const char *)data, size);
    size_t room = size < 20 ? 4 : 20, len = 999, n = 0, seen = 0;
    struct idem_http_text name = {(const char *)data, name_len};
    struct idem_http_text form = {(const char *)data + name_len, size - name_len}, rest;
    char *out = malloc(room), *copy = malloc(size + 1);
    enum idem_http_found found;
    struct idem_http_pair pair;

    if (form.len > 0) {
        form.at++;
        form.len--;
    }
    found = idem_http_form_find(form, name, out, room, &len);
    assert((found == IDEM_HTTP_ONCE) == (len != 999));
    assert(found != IDEM_HTTP_ONCE || len <= room);
    rest = form;
    while (idem_http_pair_next(&rest, &pair)) {
        assert(pair.name.len + pair.value.len <= form.len);
        if (!idem_http_unescape(pair.name, copy, size, &n))
            continue;
        assert(n <= pair.name.len && memchr(copy, '\0', n) == NULL);
        if (n != name_len || memcmp(copy, name.at, n) != 0)
            continue;
        seen++;
        if (found == IDEM_HTTP_ONCE) {
            assert(idem_http_unescape(pair.value, copy, size, &n));
            assert(n == len && memcmp(copy, out, n) == 0);
        }
    }
    assert(found != IDEM_HTTP_ONCE || seen == 1);
    assert(found != IDEM_HTTP_NONE || seen == 0);
    assert((found == IDEM_HTTP_REPEATED) == (seen > 1));
    free(out);
    free(copy);
    return 0;
}
