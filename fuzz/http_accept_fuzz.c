/*
 * Any bytes as Accept and Accept-Encoding: a value that is appended with a
 * comma counts like a field of its own, unless quotes or escapes are left open.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_field.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char more[] = ",text/html;q=0.5";
    struct idem_http_text value = {(const char *)data, size};
    struct idem_http_accept accept, joined;
    struct idem_http_codings codings;
    char *text = malloc(size + sizeof(more));

    memcpy(text, data, size);
    memcpy(text + size, more, sizeof(more));
    idem_http_accept_init(&accept);
    idem_http_accept_add(&accept, value);
    assert(!accept.malformed || !idem_http_accept_html(&accept));
    idem_http_accept_add(&accept, (struct idem_http_text){more, sizeof(more) - 1});
    idem_http_accept_init(&joined);
    idem_http_accept_add(&joined, (struct idem_http_text){text, size + sizeof(more) - 1});
    if (!accept.malformed) {
        assert(!joined.malformed && memcmp(accept.q, joined.q, sizeof(joined.q)) == 0);
        for (int i = 0; i < 10; i++)
            assert(accept.q[i / 5][i % 5] >= -1 && accept.q[i / 5][i % 5] <= 1000);
    }
    idem_http_codings_init(&codings);
    idem_http_codings_add(&codings, value);
    if (codings.malformed)
        assert(!idem_http_codings_gzip(&codings) && idem_http_codings_identity(&codings));
    idem_http_list_has(value, IDEM_HTTP_TEXT("close"));
    free(text);
    return 0;
}
