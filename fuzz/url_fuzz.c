/* Store URLs against any text: parsed or refused, without leaks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    struct idem_url url = {0};
    struct idem_error err = {0};
    int rc;

    memcpy(text, data, size);
    text[size] = '\0';
    rc = idem_url_parse(text, &url, &err);
    if (rc == 0) {
        assert(url.scheme[0] != '\0' && strlen(url.rest) <= size);
        for (size_t i = 0; i < url.query_n; i++)
            assert(idem_url_get(&url, url.query[i].name) != NULL);
        idem_url_release(&url);
    } else {
        assert(rc == err.code && err.text[0] != '\0' && url.text == NULL);
    }
    free(text);
    return 0;
}
