/*
 * The table of options, setting one by its word, and merging layers into a policy that is
 * checked. Fails on words and values that the table does not allow, on a policy without prefix or
 * scope, on what contradicts mode=lock, and when there is no memory for a string. No error holds
 * the text of a scope.
 */
#include "core/policy.h"

#include "core/error.h"
#include "core/units.h"

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
#define ATTEMPTS_RETRY 5

/* True of every refusal: front doors add which one it was. */
#define MESSAGE_DEFAULT "This request was refused, and nothing was run for it."

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
    {.word = "prefix", .type = IDEM_OPTION_TEXT, FIELD(prefix),
     .min = 1, .max = IDEM_PREFIX_MAX, .plain = true},
    {.word = "scope", .type = IDEM_OPTION_TEXT, FIELD(scope),
     .min = 1, .max = IDEM_SCOPE_MAX},
    {.word = "fingerprint", .type = IDEM_OPTION_COUNT, FIELD(fingerprint),
     .min = 1, .max = INT_MAX, .none = true},
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
    {.word = NULL},
};

static const struct idem_policy policy_presets[] = {
    /* 45 s: longer than the time-out of the page whose button was clicked twice. */
    [IDEM_PRESET_SUBMIT] = {.mode = IDEM_MODE_REPLAY, .ttl_s = 45, .wait_ms = 45 * SECOND},
    [IDEM_PRESET_API] = {.mode = IDEM_MODE_REPLAY, .ttl_s = DAY / SECOND,
                         .on_failure = IDEM_ON_FAILURE_RELEASE},
    [IDEM_PRESET_PAYMENT] = {.mode = IDEM_MODE_REPLAY, .ttl_s = DAY / SECOND,
                             .recover = IDEM_RECOVER_HOLD, .on_failure = IDEM_ON_FAILURE_KEEP},
    [IDEM_PRESET_QUEUE] = {.mode = IDEM_MODE_REJECT, .recover = IDEM_RECOVER_RERUN,
                           .on_failure = IDEM_ON_FAILURE_RETRY, .attempts = ATTEMPTS_RETRY,
                           .backoff_min_ms = SECOND, .backoff_max_ms = 5 * MINUTE},
    [IDEM_PRESET_JOB] = {.mode = IDEM_MODE_REJECT, .ttl_s = DAY / SECOND},
};

/* Without `attempts`, whose default depends on on_failure. */
static const struct idem_policy policy_default = {
    .mode = IDEM_MODE_REPLAY,
    .key_kind = IDEM_KEY_LITERAL,
    .fingerprint = 1,
    .ttl_s = DAY / SECOND,
    .hold_ttl_s = 30 * DAY / SECOND,
    .lease_ms = 30 * SECOND,
    .run_max_ms = IDEM_NONE,
    .wait_ms = IDEM_NONE,
    .recover = IDEM_RECOVER_HOLD,
    .on_failure = IDEM_ON_FAILURE_RELEASE,
    .backoff_min_ms = SECOND,
    .backoff_max_ms = 5 * MINUTE,
    .on_duplicate = IDEM_ON_DUPLICATE_ERROR,
    .message = MESSAGE_DEFAULT,
    .on_store_error = IDEM_ON_STORE_ERROR_CLOSED,
    .result_max = 1 << 20,
    .finish_timeout_ms = 10 * SECOND,
};

/* Every string that a layer owns. */
static const size_t policy_texts[] = {
    offsetof(struct idem_policy, name),
    offsetof(struct idem_policy, prefix),
    offsetof(struct idem_policy, scope),
    offsetof(struct idem_policy, message),
};
/* clang-format on */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Fields by their offset. */

static const char **text_at(struct idem_policy *policy, size_t offset) {
    return (const char **)(void *)((char *)policy + offset);
}

static const char *text_get(const struct idem_policy *policy, size_t offset) {
    const char *text;

    memcpy(&text, (const char *)policy + offset, sizeof(text));
    return text;
}

static bool is_int(const struct idem_option *option) {
    return option->type == IDEM_OPTION_WORD || option->type == IDEM_OPTION_COUNT;
}

static int64_t number_get(const struct idem_policy *policy, const struct idem_option *option,
                          size_t offset) {
    int64_t wide;
    int narrow;

    if (is_int(option)) {
        memcpy(&narrow, (const char *)policy + offset, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, (const char *)policy + offset, sizeof(wide));
    return wide;
}

static void number_put(struct idem_policy *policy, const struct idem_option *option, size_t offset,
                       int64_t value) {
    int narrow = (int)value;

    if (is_int(option))
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

/* One number as its option writes it. */
static const char *number_print(const struct idem_option *option, int64_t value, char *buf,
                                size_t size) {
    int64_t ms;

    if (value == IDEM_NONE) {
        snprintf(buf, size, "none");
    } else if (option->type == IDEM_OPTION_SIZE) {
        idem_size_print(value, buf, size);
    } else if (is_int(option)) {
        snprintf(buf, size, "%" PRId64, value);
    } else if (__builtin_mul_overflow(value, option->unit, &ms)) {
        /* Only a caller's own struct can hold this, in a field of seconds. */
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
    number_print(option, option->min, low, sizeof(low));
    number_print(option, option->max, high, sizeof(high));
    snprintf(buf, size, "%s to %s%s%s", low, high, option->none ? ", or none" : "",
             option->type == IDEM_OPTION_RANGE ? ", one or two of them as 1s..5m" : "");
    return buf;
}

static bool word_known(const struct idem_option *option, int64_t value) {
    return idem_word_name(option->values, (int)value)[0] != '?';
}

const char *idem_option_print(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size) {
    char low[IDEM_UNITS_TEXT], high[IDEM_UNITS_TEXT];
    const char *text;
    int64_t a, b;

    if (option->type == IDEM_OPTION_TEXT) {
        text = text_get(policy, option->offset);
        snprintf(buf, size, "%s", text == NULL ? "-" : text);
        return buf;
    }
    a = number_get(policy, option, option->offset);
    b = option->type == IDEM_OPTION_RANGE ? number_get(policy, option, option->offset_max) : a;
    if (a == 0 && b == 0)
        snprintf(buf, size, "-");
    else if (option->type == IDEM_OPTION_WORD && word_known(option, a))
        snprintf(buf, size, "%s", idem_word_name(option->values, (int)a));
    else if (a == b)
        number_print(option, a, buf, size);
    else
        snprintf(buf, size, "%s..%s", number_print(option, a, low, sizeof(low)),
                 number_print(option, b, high, sizeof(high)));
    return buf;
}

/* Setting one option. */

/* What is wrong with a text, as the end of a sentence; NULL if nothing is. */
static const char *text_fault(const struct idem_option *option, const char *text, size_t len) {
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

static bool number_fits(const struct idem_option *option, int64_t value) {
    if (value == IDEM_NONE)
        return option->none;
    return value >= option->min && value <= option->max;
}

/* Reads a value's own form, without its bounds, in the field's unit. */
static int number_read(const struct idem_option *option, const char *value, size_t len,
                       int64_t *ret, struct idem_error *err) {
    int64_t ms = 0;
    int rc;

    if (option->none && len == 4 && memcmp(value, "none", 4) == 0) {
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

/* An IDEM_E_INVALID about an option: what is wrong, and what is allowed. */
static int option_refuse(struct idem_error *err, const struct idem_option *option,
                         const char *what) {
    char allowed[IDEM_OPTION_TEXT_MAX];

    return idem_error_set(err, IDEM_E_INVALID, "%s: %s; allowed: %s", option->word, what,
                          idem_option_allowed(option, allowed, sizeof(allowed)));
}

static int number_parse(const struct idem_option *option, const char *value, size_t len,
                        int64_t *ret, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT], what[IDEM_QUOTE_TEXT + 32];
    struct idem_error why;
    int64_t number = 0;

    if (number_read(option, value, len, &number, &why) < 0)
        return option_refuse(err, option, why.text);
    if (!number_fits(option, number)) {
        snprintf(what, sizeof(what), "%s is out of range",
                 idem_error_quote(value, len, quoted, sizeof(quoted)));
        return option_refuse(err, option, what);
    }
    *ret = number;
    return 0;
}

static int number_set(struct idem_policy *policy, const struct idem_option *option,
                      const char *value, size_t len, struct idem_error *err) {
    int64_t number = 0;
    int rc = number_parse(option, value, len, &number, err);

    if (rc == 0)
        number_put(policy, option, option->offset, number);
    return rc;
}

static int range_set(struct idem_policy *policy, const struct idem_option *option,
                     const char *value, size_t len, struct idem_error *err) {
    const char *dots = len == 0 ? NULL : memmem(value, len, "..", 2);
    size_t low_len = dots == NULL ? len : (size_t)(dots - value);
    int64_t low = 0, high = 0;
    int rc;

    rc = number_parse(option, value, low_len, &low, err);
    if (rc < 0)
        return rc;
    high = low;
    if (dots != NULL) {
        rc = number_parse(option, dots + 2, len - low_len - 2, &high, err);
        if (rc < 0)
            return rc;
    }
    if (low > high)
        return option_refuse(err, option, "the first time is longer than the second");
    number_put(policy, option, option->offset, low);
    number_put(policy, option, option->offset_max, high);
    return 0;
}

static int word_set(struct idem_policy *policy, const struct idem_option *option, const char *value,
                    size_t len, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT], what[IDEM_QUOTE_TEXT + 32];
    int number;

    if (!idem_word_find(option->values, value, len, &number)) {
        snprintf(what, sizeof(what), "%s is not known",
                 idem_error_quote(value, len, quoted, sizeof(quoted)));
        return option_refuse(err, option, what);
    }
    number_put(policy, option, option->offset, number);
    return 0;
}

/* A NUL-terminated copy; NULL, and err says so, when there is no memory. */
static char *text_copy(const char *text, size_t len, struct idem_error *err) {
    char *copy = malloc(len + 1);

    if (copy == NULL) {
        idem_error_set(err, IDEM_E_NOMEM, "no memory for a policy");
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

static int text_set(struct idem_policy *policy, const struct idem_option *option, const char *value,
                    size_t len, struct idem_error *err) {
    const char **slot = text_at(policy, option->offset);
    const char *fault = text_fault(option, value, len);
    char *copy;

    if (fault != NULL)
        return option_refuse(err, option, fault);
    copy = text_copy(value, len, err);
    if (copy == NULL)
        return IDEM_E_NOMEM;
    free((void *)*slot);
    *slot = copy;
    return 0;
}

int idem_policy_set(struct idem_layer *layer, const char *word, size_t word_len, const char *value,
                    size_t value_len, struct idem_error *err) {
    const struct idem_option *option = idem_option_find(word, word_len);
    char quoted[IDEM_QUOTE_TEXT], words[IDEM_OPTION_TEXT_MAX];

    if (option == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "%s is no option; allowed: %s",
                              idem_error_quote(word, word_len, quoted, sizeof(quoted)),
                              idem_option_words(words, sizeof(words)));
    switch (option->type) {
    case IDEM_OPTION_WORD:
        return word_set(&layer->said, option, value, value_len, err);
    case IDEM_OPTION_TEXT:
        return text_set(&layer->said, option, value, value_len, err);
    case IDEM_OPTION_RANGE:
        return range_set(&layer->said, option, value, value_len, err);
    default:
        return number_set(&layer->said, option, value, value_len, err);
    }
}

/* Layers. */

int idem_policy_copy(const struct idem_policy *policy, struct idem_layer *ret,
                     struct idem_error *err) {
    struct idem_layer copy = {.said = *policy};
    const char *text, **slot;

    for (size_t i = 0; i < COUNT_OF(policy_texts); i++)
        *text_at(&copy.said, policy_texts[i]) = NULL;
    for (size_t i = 0; i < COUNT_OF(policy_texts); i++) {
        text = text_get(policy, policy_texts[i]);
        if (text == NULL)
            continue;
        slot = text_at(&copy.said, policy_texts[i]);
        *slot = text_copy(text, strlen(text), err);
        if (*slot == NULL) {
            idem_policy_release(&copy);
            return IDEM_E_NOMEM;
        }
    }
    *ret = copy;
    return 0;
}

void idem_policy_release(struct idem_layer *layer) {
    for (size_t i = 0; i < COUNT_OF(policy_texts); i++)
        free((void *)text_get(&layer->said, policy_texts[i]));
    *layer = (struct idem_layer){0};
}

/* Where one end is said and the other comes from a weaker layer, the weaker one gives way. */
static void range_fill(struct idem_policy *into, const struct idem_policy *layer) {
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

static void policy_fill(struct idem_policy *into, const struct idem_policy *layer) {
    const struct idem_option *o;

    for (o = idem_option_table; o->word != NULL; o++) {
        if (o->type == IDEM_OPTION_TEXT) {
            if (text_get(into, o->offset) == NULL)
                *text_at(into, o->offset) = text_get(layer, o->offset);
        } else if (o->type == IDEM_OPTION_RANGE) {
            range_fill(into, layer);
        } else if (number_get(into, o, o->offset) == 0) {
            number_put(into, o, o->offset, number_get(layer, o, o->offset));
        }
    }
    if (into->name == NULL)
        into->name = layer->name;
    if (into->key_fn == NULL)
        into->key_fn = layer->key_fn;
}

void idem_policy_merge(struct idem_policy *into, const struct idem_policy *layer) {
    bool first = into->preset == 0;

    policy_fill(into, layer);
    if (first && layer->preset != 0 && (size_t)layer->preset < COUNT_OF(policy_presets))
        policy_fill(into, &policy_presets[layer->preset]);
}

/* The whole. */

#define WHO_TEXT (IDEM_QUOTE_TEXT + 8)

/* How errors name the policy. */
static const char *policy_who(const struct idem_policy *policy, char *buf, size_t size) {
    char quoted[IDEM_QUOTE_TEXT];

    if (policy->name == NULL)
        return "policy";
    snprintf(buf, size, "policy %s",
             idem_error_quote(policy->name, strlen(policy->name), quoted, sizeof(quoted)));
    return buf;
}

static int required_refuse(const struct idem_policy *policy, const struct idem_option *option,
                           struct idem_error *err) {
    char who[WHO_TEXT];

    if (option->offset == offsetof(struct idem_policy, prefix))
        return idem_error_set(
            err, IDEM_E_INVALID,
            "%s: prefix is missing; it is put before every key and kept apart from the name, so "
            "that renaming an operation does not forget its keys; say one, as in prefix = order:",
            policy_who(policy, who, sizeof(who)));
    return idem_error_set(
        err, IDEM_E_INVALID,
        "%s: scope is missing; it says who is asking, so that one user's key never meets "
        "another's record; give a stable identity (user id, API key), or say that everybody "
        "shares one scope with scope = none (IDEM_SCOPE_NONE)",
        policy_who(policy, who, sizeof(who)));
}

static int text_check(const struct idem_policy *policy, const struct idem_option *option,
                      struct idem_error *err) {
    const char *text = text_get(policy, option->offset), *fault;
    char who[WHO_TEXT], allowed[IDEM_OPTION_TEXT_MAX];

    if (text == NULL)
        return required_refuse(policy, option, err);
    fault = text_fault(option, text, strnlen(text, (size_t)option->max + 1));
    if (fault == NULL)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "%s: %s %s; allowed: %s",
                          policy_who(policy, who, sizeof(who)), option->word, fault,
                          idem_option_allowed(option, allowed, sizeof(allowed)));
}

static bool option_fits(const struct idem_policy *policy, const struct idem_option *option) {
    int64_t a = number_get(policy, option, option->offset), b;

    if (option->type == IDEM_OPTION_WORD)
        return a == 0 ? option->min == 0 : word_known(option, a);
    if (option->type != IDEM_OPTION_RANGE)
        return number_fits(option, a);
    b = number_get(policy, option, option->offset_max);
    return number_fits(option, a) && number_fits(option, b) && a <= b;
}

static int policy_check(const struct idem_policy *policy, struct idem_error *err) {
    char who[WHO_TEXT], said[IDEM_OPTION_TEXT_MAX], allowed[IDEM_OPTION_TEXT_MAX];
    const struct idem_option *o;
    int rc;

    for (o = idem_option_table; o->word != NULL; o++) {
        if (o->type == IDEM_OPTION_TEXT) {
            rc = text_check(policy, o, err);
            if (rc < 0)
                return rc;
        } else if (!option_fits(policy, o)) {
            return idem_error_set(err, IDEM_E_INVALID, "%s: %s is %s; allowed: %s",
                                  policy_who(policy, who, sizeof(who)), o->word,
                                  idem_option_print(o, policy, said, sizeof(said)),
                                  idem_option_allowed(o, allowed, sizeof(allowed)));
        }
    }
    return 0;
}

/*
 * mode=lock implies three more values. A weaker layer than the one that said lock is overruled;
 * the same or a stronger one that says otherwise is a mistake, and is told.
 */
static int policy_lock(const struct idem_policy *const *layers, size_t n,
                       struct idem_policy *policy, struct idem_error *err) {
    const char *against = NULL;
    char who[WHO_TEXT];

    for (size_t i = 0; i < n && against == NULL; i++) {
        if (layers[i] == NULL)
            continue;
        if (layers[i]->recover == IDEM_RECOVER_HOLD)
            against = "recover=hold";
        else if (layers[i]->fingerprint > 0)
            against = "a fingerprint";
        else if (layers[i]->result_max > 0)
            against = "result_max";
        if (layers[i]->mode != 0)
            break;
    }
    if (against != NULL)
        return idem_error_set(
            err, IDEM_E_INVALID,
            "%s: %s contradicts mode=lock, which is one at a time only: it implies recover=rerun, "
            "no fingerprint and no result; leave it out, or choose mode=reject or mode=replay",
            policy_who(policy, who, sizeof(who)), against);
    policy->recover = IDEM_RECOVER_RERUN;
    policy->fingerprint = IDEM_NONE;
    policy->result_max = IDEM_NONE;
    return 0;
}

int idem_policy_resolve(const struct idem_policy *const *layers, size_t n, struct idem_policy *ret,
                        struct idem_error *err) {
    struct idem_policy policy = {0};
    int rc;

    for (size_t i = 0; i < n; i++) {
        if (layers[i] != NULL)
            idem_policy_merge(&policy, layers[i]);
    }
    idem_policy_merge(&policy, &policy_default);
    if (policy.attempts == 0)
        policy.attempts = policy.on_failure == IDEM_ON_FAILURE_RETRY ? ATTEMPTS_RETRY : IDEM_NONE;
    rc = policy_check(&policy, err);
    if (rc == 0 && policy.mode == IDEM_MODE_LOCK)
        rc = policy_lock(layers, n, &policy, err);
    if (rc == 0)
        *ret = policy;
    return rc;
}
