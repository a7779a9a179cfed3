/*
 * The options of a policy by their words: what each is called, which values it takes and which
 * field of struct idem_policy holds it stands in one table, from which settings, command lines
 * and directives are read.
 */
#ifndef IDEM_CORE_OPTION_H
#define IDEM_CORE_OPTION_H

#include "core/words.h"
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
    size_t offset_max;              /* RANGE: of the upper end */
    int64_t min, max;               /* in the field's unit; WORD: min 0 may stay unsaid */
    int64_t unit;                   /* DURATION and RANGE: ms */
    bool none;                      /* "none" is allowed and becomes IDEM_NONE */
    bool plain;                     /* TEXT: no control characters */
    bool optional;                  /* TEXT: may stay unsaid */
    const struct idem_word *values; /* WORD */
};

/* In the order of docs/options.md; ends with a word that is NULL. */
extern const struct idem_option idem_option_table[];

/* By the word, or by the command line's spelling of it ("hold-ttl"); NULL if there is none. */
const struct idem_option *idem_option_find(const char *word, size_t len);
const struct idem_option *idem_option_find_flag(const char *flag, size_t len);

/* Write what an option takes, all words, and what a policy says of it ("-": nothing). Return
   buf, which is big enough with IDEM_OPTION_TEXT_MAX except for long texts, which are cut. */
#define IDEM_OPTION_TEXT_MAX 400
const char *idem_option_allowed(const struct idem_option *option, char *buf, size_t size);
const char *idem_option_words(char *buf, size_t size);
const char *idem_option_print(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size);

/* Sets the option's field by a value's words. A text becomes a copy, which must be freed, and
   replaces one that was. 0, IDEM_E_INVALID with what is allowed, or IDEM_E_NOMEM; *policy is
   untouched on failure. */
int idem_option_set(const struct idem_option *option, struct idem_policy *policy, const char *value,
                    size_t len, struct idem_error *err);

/* Fills the option's field from a weaker policy where *into leaves it unsaid. Texts are
   borrowed. */
void idem_option_fill(const struct idem_option *option, struct idem_policy *into,
                      const struct idem_policy *from);

/* What is wrong with what a policy says, as the end of a sentence, in buf or not; NULL if nothing
   is. Of a text it does not show a byte: it may be a scope. */
const char *idem_option_fault(const struct idem_option *option, const struct idem_policy *policy,
                              char *buf, size_t size);

#endif
