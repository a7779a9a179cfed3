/*
 * Reads Idem-Outcome, the outcome that a backend states in its response.
 */
#include <string.h>

#include "base/words.h"
#include "http/http_field.h"

bool idem_http_outcome_read(struct idem_http_text value, enum idem_http_outcome *ret) {
    static const struct idem_word words[] = {
        {"done", IDEM_HTTP_DONE},
        {"release", IDEM_HTTP_RELEASE},
        {"keep", IDEM_HTTP_KEEP},
        {"unknown", IDEM_HTTP_UNKNOWN},
        {NULL, 0},
    };

    value = idem_http_trim(value);
    for (const struct idem_word *word = words; word->word != NULL; word++)
        if (idem_http_same(value, (struct idem_http_text){word->word, strlen(word->word)})) {
            *ret = (enum idem_http_outcome)word->value;
            return true;
        }
    return false;
}
