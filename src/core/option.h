/*
 * The options of a policy. One table holds each option's word, its allowed values and its field
 * in struct idem_policy; settings, command lines and directives are all read with it.
 */
#ifndef IDEM_CORE_OPTION_H
#define IDEM_CORE_OPTION_H

#include "base/words.h"
#include "idem.h"

enum idem_option_type {
    IDEM_OPTION_WORD,     /* an enum: one of `values` */
    IDEM_OPTION_TEXT,     /* const char *, min..max bytes of UTF-8 */
    IDEM_OPTION_COUNT,    /* int */
    IDEM_OPTION_DURATION, /* int64_t, `unit` ms each */
    IDEM_OPTION_RANGE,    /* two int64_t, as DURATION: MIN..MAX, or one value for both */
    IDEM_OPTION_SIZE,     /* int64_t, bytes */
};

struct idem_option {
    const char *word;  /* in settings and directives; with dashes on the command line */
    const char *field; /* in struct idem_policy */
    enum idem_option_type type;
    size_t offset;
    size_t offset_max;              /* RANGE: of the upper end's field */
    int64_t min, max;               /* in the field's unit; WORD: min 0 means it may stay unset */
    int64_t unit;                   /* DURATION and RANGE: ms */
    bool none;                      /* "none" is allowed and becomes IDEM_NONE */
    bool plain;                     /* TEXT: no control characters */
    bool optional;                  /* TEXT: may stay unset */
    const struct idem_word *values; /* WORD */
};

/* In the order of docs/options.md; ends with a word that is NULL. */
extern const struct idem_option idem_option_table[];

/* By the word, or by its command-line spelling ("hold-ttl"); NULL if there is no such option. */
const struct idem_option *idem_option_find(const char *word, size_t len);
const struct idem_option *idem_option_find_flag(const char *flag, size_t len);

/* Write the allowed values of an option, the words of all options, or an option's value in a
   policy ("-": unset). Return buf. IDEM_OPTION_TEXT_MAX is large enough except for long texts,
   which are cut. */
#define IDEM_OPTION_TEXT_MAX 400
const char *idem_option_allowed(const struct idem_option *option, char *buf, size_t size);
const char *idem_option_words(char *buf, size_t size);
const char *idem_option_print(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size);

/* Parses a value and sets the option's field. A text becomes a copy, which must be freed, and
   replaces an earlier one. Returns 0, IDEM_E_INVALID with the allowed values, or IDEM_E_NOMEM;
   *policy is untouched on failure. */
int idem_option_set(const struct idem_option *option, struct idem_policy *policy, const char *value,
                    size_t len, struct idem_error *err);

/* Fills the option's field from a weaker policy if it is unset in *into. Texts are borrowed. */
void idem_option_fill(const struct idem_option *option, struct idem_policy *into,
                      const struct idem_policy *from);

/* The fault of a policy's value, as the end of a sentence, in buf or a constant; NULL if there
   is none. It shows no byte of a text, which may be a scope. */
const char *idem_option_fault(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size);

#endif
