/*
 * The tables of words, and the search in them. Pure; it cannot fail.
 */
#include "base/words.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* clang-format off */
const struct idem_word idem_words_preset[] = {
    {"submit", IDEM_PRESET_SUBMIT},
    {"api", IDEM_PRESET_API},
    {"payment", IDEM_PRESET_PAYMENT},
    {"queue", IDEM_PRESET_QUEUE},
    {"job", IDEM_PRESET_JOB},
    {NULL, 0},
};

const struct idem_word idem_words_mode[] = {
    {"lock", IDEM_MODE_LOCK},
    {"reject", IDEM_MODE_REJECT},
    {"replay", IDEM_MODE_REPLAY},
    {NULL, 0},
};

const struct idem_word idem_words_key[] = {
    {"literal", IDEM_KEY_LITERAL},
    {"token", IDEM_KEY_TOKEN},
    {"expression", IDEM_KEY_EXPRESSION},
    {"parameters", IDEM_KEY_PARAMETERS},
    {"serial", IDEM_KEY_SERIAL},
    {NULL, 0},
};

const struct idem_word idem_words_recover[] = {
    {"hold", IDEM_RECOVER_HOLD},
    {"rerun", IDEM_RECOVER_RERUN},
    {NULL, 0},
};

const struct idem_word idem_words_on_failure[] = {
    {"release", IDEM_ON_FAILURE_RELEASE},
    {"retry", IDEM_ON_FAILURE_RETRY},
    {"keep", IDEM_ON_FAILURE_KEEP},
    {NULL, 0},
};

const struct idem_word idem_words_on_duplicate[] = {
    {"error", IDEM_ON_DUPLICATE_ERROR},
    {"success", IDEM_ON_DUPLICATE_SUCCESS},
    {NULL, 0},
};

const struct idem_word idem_words_on_store_error[] = {
    {"closed", IDEM_ON_STORE_ERROR_CLOSED},
    {"open", IDEM_ON_STORE_ERROR_OPEN},
    {NULL, 0},
};

const struct idem_word idem_words_state[] = {
    {"absent", IDEM_ABSENT},
    {"issued", IDEM_ISSUED},
    {"running", IDEM_RUNNING},
    {"done", IDEM_DONE},
    {"failed", IDEM_FAILED},
    {"damaged", IDEM_DAMAGED},
    {"newer", IDEM_NEWER},
    {NULL, 0},
};

const struct idem_word idem_words_verdict[] = {
    {"run", IDEM_RUN},
    {"replay", IDEM_REPLAY},
    {"duplicate", IDEM_DUPLICATE},
    {"busy", IDEM_BUSY},
    {"mismatch", IDEM_MISMATCH},
    {"uncertain", IDEM_UNCERTAIN},
    {"dead", IDEM_DEAD},
    {"no_token", IDEM_NO_TOKEN},
    {"probe", IDEM_PROBE},
    {NULL, 0},
};

const struct idem_word idem_words_event[] = {
    {"run", IDEM_EVENT_RUN},
    {"replay", IDEM_EVENT_REPLAY},
    {"duplicate", IDEM_EVENT_DUPLICATE},
    {"busy", IDEM_EVENT_BUSY},
    {"mismatch", IDEM_EVENT_MISMATCH},
    {"uncertain", IDEM_EVENT_UNCERTAIN},
    {"dead", IDEM_EVENT_DEAD},
    {"no_token", IDEM_EVENT_NO_TOKEN},
    {"probe", IDEM_EVENT_PROBE},
    {"superseded", IDEM_EVENT_SUPERSEDED},
    {"lease_lost", IDEM_EVENT_LEASE_LOST},
    {"unstored", IDEM_EVENT_UNSTORED},
    {"unguarded", IDEM_EVENT_UNGUARDED},
    {"store_error", IDEM_EVENT_STORE_ERROR},
    {"signature_incomplete", IDEM_EVENT_SIGNATURE_INCOMPLETE},
    {"signature_stale", IDEM_EVENT_SIGNATURE_STALE},
    {"signature_wrong", IDEM_EVENT_SIGNATURE_WRONG},
    {"nonce_reused", IDEM_EVENT_NONCE_REUSED},
    {"result_dropped", IDEM_EVENT_RESULT_DROPPED},
    {NULL, 0},
};

const struct idem_word idem_words_code[] = {
    {"ok", IDEM_OK},
    {"invalid", IDEM_E_INVALID},
    {"nomem", IDEM_E_NOMEM},
    {"refused", IDEM_E_REFUSED},
    {"unknown", IDEM_E_UNKNOWN},
    {"full", IDEM_E_FULL},
    {"corrupt", IDEM_E_CORRUPT},
    {"version", IDEM_E_VERSION},
    {"clock", IDEM_E_CLOCK},
    {"fork", IDEM_E_FORK},
    {"absent", IDEM_E_ABSENT},
    {"live", IDEM_E_LIVE},
    {"settled", IDEM_E_SETTLED},
    {"retry_tx", IDEM_E_RETRY_TX},
    {"tx_lost", IDEM_E_TX_LOST},
    {NULL, 0},
};
/* clang-format on */

bool idem_word_find(const struct idem_word *words, const char *text, size_t len, int *ret_value) {
    for (; words->word != NULL; words++) {
        if (idem_is_word(text, len, words->word)) {
            *ret_value = words->value;
            return true;
        }
    }
    return false;
}

const char *idem_word_name(const struct idem_word *words, int value) {
    for (; words->word != NULL; words++) {
        if (words->value == value)
            return words->word;
    }
    return "?";
}

const char *idem_words_list(const struct idem_word *words, char *buf, size_t size) {
    const char *comma = "";
    size_t at = 0;
    int n;

    buf[0] = '\0';
    for (; words->word != NULL; words++) {
        n = snprintf(buf + at, size - at, "%s%s", comma, words->word);
        if (n < 0 || (size_t)n >= size - at) {
            buf[at] = '\0';
            break;
        }
        at += (size_t)n;
        comma = ", ";
    }
    return buf;
}

const char *idem_state_name(enum idem_state state) {
    return idem_word_name(idem_words_state, (int)state);
}

const char *idem_verdict_name(enum idem_verdict verdict) {
    return idem_word_name(idem_words_verdict, (int)verdict);
}

const char *idem_event_name(enum idem_event event) {
    return idem_word_name(idem_words_event, (int)event);
}

const char *idem_code_name(int code) {
    return idem_word_name(idem_words_code, code);
}
