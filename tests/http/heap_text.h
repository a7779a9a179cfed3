/* A text in a heap block of exactly its length, so that the sanitizers see a read one byte
 * beyond it. */
#ifndef IDEM_TEST_HTTP_HEAP_TEXT_H
#define IDEM_TEST_HTTP_HEAP_TEXT_H

#include "http/http_field.h"
#include "test.h"

static inline struct idem_http_text text_n(const char *bytes, size_t len) {
    char *copy = malloc(len + (len == 0));

    CHECK(copy != NULL);
    memcpy(copy, bytes, len);
    return (struct idem_http_text){copy, len};
}

static inline void text_free(struct idem_http_text text) {
    free((char *)text.at);
}

#endif
