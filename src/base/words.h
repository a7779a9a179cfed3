/*
 * Words: the names of enum values in settings, command lines, directives and logs.
 *
 * A list ends with an entry whose `word` is NULL. Words are compared byte by byte, so each has one
 * spelling.
 */
#ifndef IDEM_BASE_WORDS_H
#define IDEM_BASE_WORDS_H

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

/* Returns true and sets *ret_value; or returns false and leaves it untouched. */
bool idem_word_find(const struct idem_word *words, const char *text, size_t len, int *ret_value);

/* Returns the word of a value, or "?" if it has none. */
const char *idem_word_name(const struct idem_word *words, int value);

/* Writes "lock, reject, replay" and returns buf; words that do not fit are left out. */
const char *idem_words_list(const struct idem_word *words, char *buf, size_t size);

#endif
