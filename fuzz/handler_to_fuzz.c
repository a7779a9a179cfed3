/*
 * Any bytes as an endpoint's response, line by line and then its body: delays
 * stay within a day, and the reason is text within its bounds.
 */
#include <assert.h>
#include <string.h>

#include "base/units.h"
#include "queue/handler/handler_to.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct to_answer answer = {0};
    const char *at = (const char *)data, *end = at + size, *line;
    char reason[300];
    int64_t ms;

    while (!answer.whole_head && (line = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        to_answer_line(&answer, at, (size_t)(line + 1 - at));
        at = line + 1;
    }
    to_answer_body(&answer, at, (size_t)(end - at) / 2);
    to_answer_body(&answer, at + (end - at) / 2, (size_t)(end - at) - (size_t)(end - at) / 2);
    assert(answer.body_len <= TO_KEPT_MAX);
    ms = to_answer_delay_ms(&answer);
    assert(ms >= 0 && ms <= HANDLER_DELAY_MAX_MS);
    to_answer_reason(&answer, 500, reason, sizeof(reason));
    assert(strncmp(reason, "HTTP 500", 8) == 0 && idem_utf8_valid(reason, strlen(reason)));
    return 0;
}
