/*
 * Which broker a URL is for. Fails on a scheme that no broker of this build knows.
 */
#include "queue/broker.h"

#include <stdio.h>
#include <string.h>

#include "brokers.h"
#include "core/error.h"
#include "queue/dead.h"

#define DECLARE(name)                                                                              \
    extern const struct queue_broker queue_broker_##name;                                          \
    extern const struct queue_dead_broker queue_dead_broker_##name;
QUEUE_BROKERS(DECLARE)

/* A broker's two tables, which know the same schemes. */
struct entry {
    const struct queue_broker *messages;
    const struct queue_dead_broker *dead;
};

#define ENTRY(name) {&queue_broker_##name, &queue_dead_broker_##name},
static const struct entry entries[] = {QUEUE_BROKERS(ENTRY){NULL, NULL}};

static bool scheme_is(const char *url, size_t len, const char *scheme) {
    return url[len] == ':' && strlen(scheme) == len && strncmp(url, scheme, len) == 0;
}

static const struct entry *entry_find(const char *url, struct idem_error *err) {
    size_t len = strcspn(url, ":"), at = 0;
    char known[128] = "none in this build", quoted[IDEM_QUOTE_TEXT];

    for (const struct entry *entry = entries; entry->messages != NULL; entry++) {
        for (const char *const *scheme = entry->messages->schemes; *scheme != NULL; scheme++) {
            if (scheme_is(url, len, *scheme))
                return entry;
            if (at < sizeof(known))
                at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s:", at == 0 ? "" : ", ",
                                       *scheme);
        }
    }
    /* What is before the first colon is no secret; a URL may be. */
    idem_error_set(err, IDEM_E_INVALID, "no broker is known by %s; known are: %s",
                   url[len] == ':' ? idem_error_quote(url, len, quoted, sizeof(quoted))
                                   : "a URL without a scheme",
                   known);
    return NULL;
}

const struct queue_broker *queue_broker_find(const char *url, struct idem_error *err) {
    const struct entry *entry = entry_find(url, err);

    return entry == NULL ? NULL : entry->messages;
}

const struct queue_dead_broker *queue_dead_find(const char *url, struct idem_error *err) {
    const struct entry *entry = entry_find(url, err);

    return entry == NULL ? NULL : entry->dead;
}
