/*
 * The events that a sentinel publishes about a master. Fails on text that does not have the form of
 * its channel.
 */
#include "store/redis/redis_sentinel_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define WORDS_MAX 8

/* The places of the master's name and of the new address in the text. */
enum form {
    FORM_INSTANCE, /* master NAME IP PORT, or slave NAME IP PORT @ NAME IP PORT */
    FORM_SWITCH,   /* NAME OLD-IP OLD-PORT NEW-IP NEW-PORT */
};

static const struct {
    const char *channel;
    enum sentinel_sign sign;
    enum form form;
} channels[] = {
    {"+selected-slave", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+failover-state-send-slaveof-noone", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+failover-state-wait-promotion", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+promoted-slave", SENTINEL_MOVES, FORM_INSTANCE},
    {"+switch-master", SENTINEL_MOVES, FORM_SWITCH},
    {"-failover-abort-not-elected", SENTINEL_ABORTS, FORM_INSTANCE},
    {"-failover-abort-no-good-slave", SENTINEL_ABORTS, FORM_INSTANCE},
    {"-failover-abort-slave-timeout", SENTINEL_ABORTS, FORM_INSTANCE},
};

const char *sentinel_channel(size_t i) {
    return i < sizeof(channels) / sizeof(channels[0]) ? channels[i].channel : NULL;
}

struct word {
    const char *at;
    size_t len;
};

/* Splits the text at its spaces; returns the number of words, at most WORDS_MAX. */
static size_t sentinel_event_split_words(const char *text, size_t len,
                                         struct word words[WORDS_MAX]) {
    const char *end = text + len, *space;
    size_t n = 0;

    while (text < end && n < WORDS_MAX) {
        space = memchr(text, ' ', (size_t)(end - text));
        if (space == NULL)
            space = end;
        words[n++] = (struct word){text, (size_t)(space - text)};
        text = space + (space < end);
    }
    return n;
}

static bool word_is(struct word word, const char *text) {
    return idem_is_word(word.at, word.len, text);
}

bool sentinel_address(const char *name, size_t name_len, const char *port, size_t port_len,
                      struct idem_host_name *ret) {
    struct idem_host_name host = {0};
    char digits[8], *end;
    unsigned long number;

    if (name_len == 0 || name_len >= sizeof(host.name) || memchr(name, '\0', name_len) != NULL ||
        port_len == 0 || port_len >= sizeof(digits) || port[0] < '0' || port[0] > '9')
        return false;
    memcpy(digits, port, port_len);
    digits[port_len] = '\0';
    number = strtoul(digits, &end, 10);
    if (*end != '\0' || number == 0 || number > UINT16_MAX)
        return false;
    memcpy(host.name, name, name_len);
    host.port = (uint16_t)number;
    *ret = host;
    return true;
}

bool sentinel_event_read(const char *channel, const char *text, size_t len, const char *master,
                         struct sentinel_event *ret) {
    struct word words[WORDS_MAX], at;
    size_t n = sentinel_event_split_words(text, len, words), i = 0, address = 2;

    while (i < sizeof(channels) / sizeof(channels[0]) && strcmp(channels[i].channel, channel) != 0)
        i++;
    if (i == sizeof(channels) / sizeof(channels[0]))
        return false;
    if (channels[i].form == FORM_SWITCH && n == 5) {
        at = words[0];
        address = 3;
    } else if (channels[i].form == FORM_INSTANCE && n >= 4 && word_is(words[0], "master")) {
        at = words[1];
    } else if (channels[i].form == FORM_INSTANCE && n == 8 && word_is(words[4], "@")) {
        at = words[5];
    } else {
        return false;
    }
    ret->sign = channels[i].sign;
    return word_is(at, master) &&
           sentinel_address(words[address].at, words[address].len, words[address + 1].at,
                            words[address + 1].len, &ret->host);
}
