/*
 * The table of options, and the operations on one option of a policy: find it by its word,
 * describe it, set it, fill it, check it. Fails on values that the table does not allow, and when
 * there is no memory for a text. No error text contains a scope.
 */
#include "core/option.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * (int64_t)HOUR)

#define MESSAGE_MAX 1024
#define EXPRESSION_MAX 4096

_Static_assert(sizeof(enum idem_mode) == sizeof(int), "words are stored as int");

#define FIELD(name) .field = #name, .offset = offsetof(struct idem_policy, name)
#define WORDS(option, name, least)                                                                 \
    {                                                                                              \
        .word = #option, .type = IDEM_OPTION_WORD, FIELD(name), .min = least,                      \
        .values = idem_words_##option                                                              \
    }

/* clang-format off */
const struct idem_option idem_option_table[] = {
    WORDS(preset, preset, 0),
    WORDS(mode, mode, 1),
    WORDS(key, key_kind, 1),
    {.word = "key_expr", .type = IDEM_OPTION_TEXT, FIELD(key_expr),
     .min = 1, .max = EXPRESSION_MAX, .optional = true},
    {.word = "prefix", .type = IDEM_OPTION_TEXT, FIELD(prefix),
     .min = 1, .max = IDEM_PREFIX_MAX, .plain = true},
    {.word = "scope", .type = IDEM_OPTION_TEXT, FIELD(scope),
     .min = 1, .max = IDEM_SCOPE_MAX},
    {.word = "fingerprint", .type = IDEM_OPTION_COUNT, FIELD(fingerprint),
     .min = 1, .max = INT_MAX, .none = true},
    {.word = "fingerprint_expr", .type = IDEM_OPTION_TEXT, FIELD(fingerprint_expr),
     .min = 1, .max = EXPRESSION_MAX, .optional = true},
    {.word = "json_max", .type = IDEM_OPTION_SIZE, FIELD(json_max),
     .min = 1, .max = IDEM_JSON_MAX},
    {.word = "ttl", .type = IDEM_OPTION_DURATION, FIELD(ttl_s),
     .min = 1, .max = 3650 * DAY / SECOND, .unit = SECOND},
    {.word = "hold_ttl", .type = IDEM_OPTION_DURATION, FIELD(hold_ttl_s),
     .min = 1, .max = 3650 * DAY / SECOND, .unit = SECOND},
    {.word = "lease", .type = IDEM_OPTION_DURATION, FIELD(lease_ms),
     .min = 100, .max = 24 * HOUR, .unit = 1},
    {.word = "run_max", .type = IDEM_OPTION_DURATION, FIELD(run_max_ms),
     .min = 1, .max = 3650 * DAY, .unit = 1, .none = true},
    {.word = "wait", .type = IDEM_OPTION_DURATION, FIELD(wait_ms),
     .min = 1, .max = HOUR, .unit = 1, .none = true},
    WORDS(recover, recover, 1),
    WORDS(on_failure, on_failure, 1),
    {.word = "attempts", .type = IDEM_OPTION_COUNT, FIELD(attempts),
     .min = 1, .max = 1000000, .none = true},
    {.word = "backoff", .type = IDEM_OPTION_RANGE, FIELD(backoff_min_ms),
     .offset_max = offsetof(struct idem_policy, backoff_max_ms),
     .min = 1, .max = 7 * DAY, .unit = 1},
    WORDS(on_duplicate, on_duplicate, 1),
    {.word = "message", .type = IDEM_OPTION_TEXT, FIELD(message),
     .min = 1, .max = MESSAGE_MAX},
    WORDS(on_store_error, on_store_error, 1),
    {.word = "result_max", .type = IDEM_OPTION_SIZE, FIELD(result_max),
     .min = 1, .max = IDEM_RESULT_MAX},
    {.word = "finish_timeout", .type = IDEM_OPTION_DURATION, FIELD(finish_timeout_ms),
     .min = 1, .max = HOUR, .unit = 1},
    {.word = "token_ttl", .type = IDEM_OPTION_DURATION, FIELD(token_ttl_s),
     .min = 1, .max = 3650 * DAY / SECOND, .unit = SECOND},
    {.word = NULL},
};
/* clang-format on */

/* Access to fields by their offset. */

static const char **option_text_slot(struct idem_policy *policy, size_t offset) {
    return (const char **)(void *)((char *)policy + offset);
}

static const char *option_get_text(const struct idem_policy *policy, size_t offset) {
    const char *text;

    memcpy(&text, (const char *)policy + offset, sizeof(text));
    return text;
}

static bool option_is_int(const struct idem_option *option) {
    return option->type == IDEM_OPTION_WORD || option->type == IDEM_OPTION_COUNT;
}

static int64_t option_get_number(const struct idem_policy *policy, const struct idem_option *option,
                                 size_t offset) {
    int64_t wide;
    int narrow;

    if (option_is_int(option)) {
        memcpy(&narrow, (const char *)policy + offset, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, (const char *)policy + offset, sizeof(wide));
    return wide;
}

static void option_put_number(struct idem_policy *policy, const struct idem_option *option,
                              size_t offset, int64_t value) {
    int narrow = (int)value;

    if (option_is_int(option))
        memcpy((char *)policy + offset, &narrow, sizeof(narrow));
    else
        memcpy((char *)policy + offset, &value, sizeof(value));
}

/* Finding and describing. */

static const struct idem_option *option_search(const char *word, size_t len, char separator) {
    const struct idem_option *option;
    size_t i;

    for (option = idem_option_table; option->word != NULL; option++) {
        if (strlen(option->word) != len)
            continue;
        for (i = 0; i < len; i++) {
            if (word[i] != (option->word[i] == '_' ? separator : option->word[i]))
                break;
        }
        if (i == len)
            return option;
    }
    return NULL;
}

const struct idem_option *idem_option_find(const char *word, size_t len) {
    return option_search(word, len, '_');
}

const struct idem_option *idem_option_find_flag(const char *flag, size_t len) {
    return option_search(flag, len, '-');
}

const char *idem_option_words(char *buf, size_t size) {
    size_t at = 0;
    int n;

    buf[0] = '\0';
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        n = snprintf(buf + at, size - at, "%s%s", at == 0 ? "" : ", ", o->word);
        if (n < 0 || (size_t)n >= size - at)
            break;
        at += (size_t)n;
    }
    return buf;
}

/* Formats one number in its option's unit. */
static const char *option_print_number(const struct idem_option *option, int64_t value, char *buf,
                                       size_t size) {
    int64_t ms;

    if (value == IDEM_NONE) {
        snprintf(buf, size, "none");
    } else if (option->type == IDEM_OPTION_SIZE) {
        idem_size_print(value, buf, size);
    } else if (option_is_int(option)) {
        snprintf(buf, size, "%" PRId64, value);
    } else if (__builtin_mul_overflow(value, option->unit, &ms)) {
        /* Only a caller's own struct can hold such a value, in a field of seconds. */
        snprintf(buf, size, "%" PRId64 "s", value);
    } else {
        idem_duration_print(ms, buf, size);
    }
    return buf;
}

const char *idem_option_allowed(const struct idem_option *option, char *buf, size_t size) {
    char low[IDEM_UNITS_TEXT], high[IDEM_UNITS_TEXT];

    if (option->type == IDEM_OPTION_WORD)
        return idem_words_list(option->values, buf, size);
    if (option->type == IDEM_OPTION_TEXT) {
        snprintf(buf, size, "%" PRId64 " to %" PRId64 " bytes of UTF-8%s", option->min, option->max,
                 option->plain ? " without control characters" : "");
        return buf;
    }
    option_print_number(option, option->min, low, sizeof(low));
    option_print_number(option, option->max, high, sizeof(high));
    snprintf(buf, size, "%s to %s%s%s", low, high, option->none ? ", or none" : "",
             option->type == IDEM_OPTION_RANGE ? ", one or two of them as 1s..5m" : "");
    return buf;
}

static bool option_knows_word(const struct idem_option *option, int64_t value) {
    return idem_word_name(option->values, (int)value)[0] != '?';
}

const char *idem_option_print(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size) {
    char low[IDEM_UNITS_TEXT], high[IDEM_UNITS_TEXT];
    const char *text;
    int64_t a, b;

    if (option->type == IDEM_OPTION_TEXT) {
        text = option_get_text(policy, option->offset);
        snprintf(buf, size, "%s", text == NULL ? "-" : text);
        return buf;
    }
    a = option_get_number(policy, option, option->offset);
    b = option->type == IDEM_OPTION_RANGE ? option_get_number(policy, option, option->offset_max)
                                          : a;
    if (a == 0 && b == 0)
        snprintf(buf, size, "-");
    else if (option->type == IDEM_OPTION_WORD && option_knows_word(option, a))
        snprintf(buf, size, "%s", idem_word_name(option->values, (int)a));
    else if (a == b)
        option_print_number(option, a, buf, size);
    else
        snprintf(buf, size, "%s..%s", option_print_number(option, a, low, sizeof(low)),
                 option_print_number(option, b, high, sizeof(high)));
    return buf;
}

/* Setting one option. */

/* The fault of a text, as the end of a sentence; NULL if there is none. */
static const char *option_text_fault(const struct idem_option *option, const char *text,
                                     size_t len) {
    uint32_t c = 0;
    size_t n;

    if ((int64_t)len < option->min)
        return "is empty";
    if (len > (size_t)option->max)
        return "is too long";
    for (size_t pos = 0; pos < len; pos += n) {
        n = idem_utf8_next(text + pos, len - pos, &c);
        if (n == 0)
            return "is not UTF-8";
        if (c == 0)
            return "holds a NUL byte";
        if (option->plain && idem_utf8_is_control(c))
            return "holds a control character";
    }
    return NULL;
}

static bool option_fits_number(const struct idem_option *option, int64_t value) {
    if (value == IDEM_NONE)
        return option->none;
    return value >= option->min && value <= option->max;
}

/* Parses a value in its option's form, in the field's unit, without a check of its bounds. */
static int option_read_number(const struct idem_option *option, const char *value, size_t len,
                              int64_t *ret, struct idem_error *err) {
    int64_t ms = 0;
    int rc;

    if (option->none && idem_is_word(value, len, "none")) {
        *ret = IDEM_NONE;
        return 0;
    }
    if (option->type == IDEM_OPTION_COUNT)
        return idem_count_parse(value, len, ret, err);
    if (option->type == IDEM_OPTION_SIZE)
        return idem_size_parse(value, len, ret, err);
    rc = idem_duration_parse(value, len, &ms, err);
    if (rc < 0)
        return rc;
    if (ms % option->unit != 0)
        return idem_error_set(err, IDEM_E_INVALID, "it is counted in whole seconds");
    *ret = ms / option->unit;
    return 0;
}

/* Sets an IDEM_E_INVALID about an option: the fault and the allowed values. */
static int option_refuse(struct idem_error *err, const struct idem_option *option,
                         const char *what) {
    char allowed[IDEM_OPTION_TEXT_MAX];

    return idem_error_set(err, IDEM_E_INVALID, "%s: %s; allowed: %s", option->word, what,
                          idem_option_allowed(option, allowed, sizeof(allowed)));
}

static int option_parse_number(const struct idem_option *option, const char *value, size_t len,
                               int64_t *ret, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT], what[IDEM_QUOTE_TEXT + 32];
    struct idem_error why;
    int64_t number = 0;

    if (option_read_number(option, value, len, &number, &why) < 0)
        return option_refuse(err, option, why.text);
    if (!option_fits_number(option, number)) {
        snprintf(what, sizeof(what), "%s is out of range",
                 idem_error_quote(value, len, quoted, sizeof(quoted)));
        return option_refuse(err, option, what);
    }
    *ret = number;
    return 0;
}

static int option_set_number(struct idem_policy *policy, const struct idem_option *option,
                             const char *value, size_t len, struct idem_error *err) {
    int64_t number = 0;
    int rc = option_parse_number(option, value, len, &number, err);

    if (rc == 0)
        option_put_number(policy, option, option->offset, number);
    return rc;
}

static int option_set_range(struct idem_policy *policy, const struct idem_option *option,
                            const char *value, size_t len, struct idem_error *err) {
    const char *dots = len == 0 ? NULL : memmem(value, len, "..", 2);
    size_t low_len = dots == NULL ? len : (size_t)(dots - value);
    int64_t low = 0, high = 0;
    int rc;

    rc = option_parse_number(option, value, low_len, &low, err);
    if (rc < 0)
        return rc;
    high = low;
    if (dots != NULL) {
        rc = option_parse_number(option, dots + 2, len - low_len - 2, &high, err);
        if (rc < 0)
            return rc;
    }
    if (low > high)
        return option_refuse(err, option, "the first time is longer than the second");
    option_put_number(policy, option, option->offset, low);
    option_put_number(policy, option, option->offset_max, high);
    return 0;
}

static int option_set_word(struct idem_policy *policy, const struct idem_option *option,
                           const char *value, size_t len, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT], what[IDEM_QUOTE_TEXT + 32];
    int number;

    if (!idem_word_find(option->values, value, len, &number)) {
        snprintf(what, sizeof(what), "%s is not known",
                 idem_error_quote(value, len, quoted, sizeof(quoted)));
        return option_refuse(err, option, what);
    }
    option_put_number(policy, option, option->offset, number);
    return 0;
}

static int option_set_text(struct idem_policy *policy, const struct idem_option *option,
                           const char *value, size_t len, struct idem_error *err) {
    const char **slot = option_text_slot(policy, option->offset);
    const char *fault = option_text_fault(option, value, len);
    char *copy;

    if (fault != NULL)
        return option_refuse(err, option, fault);
    copy = malloc(len + 1);
    if (copy == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a policy");
    memcpy(copy, value, len);
    copy[len] = '\0';
    free((void *)*slot);
    *slot = copy;
    return 0;
}

int idem_option_set(const struct idem_option *option, struct idem_policy *policy, const char *value,
                    size_t len, struct idem_error *err) {
    switch (option->type) {
    case IDEM_OPTION_WORD:
        return option_set_word(policy, option, value, len, err);
    case IDEM_OPTION_TEXT:
        return option_set_text(policy, option, value, len, err);
    case IDEM_OPTION_RANGE:
        return option_set_range(policy, option, value, len, err);
    default:
        return option_set_number(policy, option, value, len, err);
    }
}

/* Filling and checking. */

/* If one end is set and the other comes from a weaker layer, the weaker value gives way. */
static void option_fill_range(struct idem_policy *into, const struct idem_policy *layer) {
    int64_t *low = &into->backoff_min_ms, *high = &into->backoff_max_ms;

    if (*low == 0 && *high == 0) {
        *low = layer->backoff_min_ms;
        *high = layer->backoff_max_ms;
    } else if (*low == 0) {
        *low = layer->backoff_min_ms > *high ? *high : layer->backoff_min_ms;
    } else if (*high == 0 && layer->backoff_max_ms != 0) {
        *high = layer->backoff_max_ms < *low ? *low : layer->backoff_max_ms;
    }
}

void idem_option_fill(const struct idem_option *option, struct idem_policy *into,
                      const struct idem_policy *from) {
    size_t at = option->offset;

    if (option->type == IDEM_OPTION_TEXT) {
        if (option_get_text(into, at) == NULL)
            *option_text_slot(into, at) = option_get_text(from, at);
    } else if (option->type == IDEM_OPTION_RANGE) {
        option_fill_range(into, from);
    } else if (option_get_number(into, option, at) == 0) {
        option_put_number(into, option, at, option_get_number(from, option, at));
    }
}

static bool option_fits(const struct idem_policy *policy, const struct idem_option *option) {
    int64_t a = option_get_number(policy, option, option->offset), b;

    if (option->type == IDEM_OPTION_WORD)
        return a == 0 ? option->min == 0 : option_knows_word(option, a);
    if (option->type != IDEM_OPTION_RANGE)
        return option_fits_number(option, a);
    b = option_get_number(policy, option, option->offset_max);
    return option_fits_number(option, a) && option_fits_number(option, b) && a <= b;
}

const char *idem_option_fault(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size) {
    char shown[IDEM_OPTION_TEXT_MAX];
    const char *text;

    if (option->type == IDEM_OPTION_TEXT) {
        text = option_get_text(policy, option->offset);
        if (text == NULL)
            return option->optional ? NULL : "is missing";
        return option_text_fault(option, text, strnlen(text, (size_t)option->max + 1));
    }
    if (option_fits(policy, option))
        return NULL;
    snprintf(buf, size, "is %s", idem_option_print(option, policy, shown, sizeof(shown)));
    return buf;
}
