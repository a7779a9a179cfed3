/*
 * Any bytes as a worker's line: an accepted line is a valid response, within
 * its bounds, and its reason is one line of UTF-8. A refusal changes nothing.
 */
#include <assert.h>
#include <string.h>

#include "base/units.h"
#include "base/visible.h"
#include "queue/handler/handler_answer.h"
#include "queue/handler/handler_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reason_check(const char *reason) {
    size_t len = strlen(reason), n;
    uint32_t c;

    assert(len <= IDEM_REASON_MAX);
    for (size_t at = 0; at < len; at += n) {
        n = idem_utf8_next(reason + at, len - at, &c);
        assert(n != 0 && idem_visible(c));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct handler_answer answer = {.result = 99};
    struct idem_error err;
    char words[32];

    if (handler_answer_parse((const char *)data, size, 7, &answer, &err) == 0) {
        assert(size <= HANDLER_ANSWER_MAX);
        assert(answer.result >= QUEUE_DONE && answer.result <= QUEUE_UNKNOWN);
        assert(answer.delay_ms >= 0 && answer.delay_ms <= HANDLER_DELAY_MAX_MS);
        reason_check(answer.reason);
    } else {
        assert(answer.result == 99 && err.text[0] != '\0');
    }
    reason_check(handler_words((const char *)data, size, words, sizeof(words)));
    return 0;
}
