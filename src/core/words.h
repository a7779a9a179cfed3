/*
 * Words: the names that settings, command lines, directives and logs use for the values of enums.
 *
 * A list of words ends with one whose `word` is NULL. Words are matched byte by byte: there is
 * one spelling of each.
 */
#ifndef IDEM_CORE_WORDS_H
#define IDEM_CORE_WORDS_H

#include "idem.h"

struct idem_word {
    const char *word;
    int value;
};

extern const struct idem_word idem_words_preset[];
extern const struct idem_word idem_words_mode[];
extern const struct idem_word idem_words_key[];
extern const struct idem_word idem_words_recover[];
extern const struct idem_word idem_words_on_failure[];
extern const struct idem_word idem_words_on_duplicate[];
extern const struct idem_word idem_words_on_store_error[];

extern const struct idem_word idem_words_state[];
extern const struct idem_word idem_words_verdict[];
extern const struct idem_word idem_words_event[];
extern const struct idem_word idem_words_code[];

/* True and the value, or false with *ret_value untouched. */
bool idem_word_find(const struct idem_word *words, const char *text, size_t len, int *ret_value);

/* The word of a value, "?" if it has none. */
const char *idem_word_name(const struct idem_word *words, int value);

/* Writes "lock, reject, replay" and returns buf; what does not fit is left out. */
const char *idem_words_list(const struct idem_word *words, char *buf, size_t size);

#endif
