/*
 * Finds the broker for a URL. Fails on a scheme that no broker of this build has.
 */
#include "queue/broker.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "brokers.h"
#include "queue/dead_letter.h"

#define DECLARE(name)                                                                              \
    extern const struct queue_broker queue_broker_##name;                                          \
    extern const struct queue_dead_broker queue_dead_broker_##name;
QUEUE_BROKERS(DECLARE)

/* The two tables of one broker. */
struct entry {
    const struct queue_broker *messages;
    const struct queue_dead_broker *dead;
};

#define ENTRY(name) {&queue_broker_##name, &queue_dead_broker_##name},
static const struct entry entries[] = {QUEUE_BROKERS(ENTRY){NULL, NULL}};

static bool broker_scheme_is(const char *url, size_t len, const char *scheme) {
    return url[len] == ':' && strlen(scheme) == len && strncmp(url, scheme, len) == 0;
}

static const struct entry *broker_entry_find(const char *url, struct idem_error *err) {
    size_t len = strcspn(url, ":"), at = 0;
    char known[128] = "none in this build", quoted[IDEM_QUOTE_TEXT];

    for (const struct entry *entry = entries; entry->messages != NULL; entry++) {
        for (const char *const *scheme = entry->messages->schemes; *scheme != NULL; scheme++) {
            if (broker_scheme_is(url, len, *scheme))
                return entry;
            if (at < sizeof(known))
                at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s:", at == 0 ? "" : ", ",
                                       *scheme);
        }
    }
    /* The part before the first colon is no secret; the URL may contain one. */
    idem_error_set(err, IDEM_E_INVALID, "no broker is known by %s; known are: %s",
                   url[len] == ':' ? idem_error_quote(url, len, quoted, sizeof(quoted))
                                   : "a URL without a scheme",
                   known);
    return NULL;
}

const struct queue_broker *queue_broker_find(const char *url, struct idem_error *err) {
    const struct entry *entry = broker_entry_find(url, err);

    return entry == NULL ? NULL : entry->messages;
}

const struct queue_dead_broker *queue_dead_find(const char *url, struct idem_error *err) {
    const struct entry *entry = broker_entry_find(url, err);

    return entry == NULL ? NULL : entry->dead;
}
