/*
 * Which broker a URL is for. Fails on a scheme that no broker of this build knows.
 */
#include "queue/broker.h"

#include <stdio.h>
#include <string.h>

#include "brokers.h"
#include "core/error.h"

#define DECLARE(name) extern const struct queue_broker queue_broker_##name;
QUEUE_BROKERS(DECLARE)

#define ENTRY(name) &queue_broker_##name,
static const struct queue_broker *const brokers[] = {QUEUE_BROKERS(ENTRY) NULL};

static bool scheme_is(const char *url, size_t len, const char *scheme) {
    return strlen(scheme) == len && strncmp(url, scheme, len) == 0;
}

const struct queue_broker *queue_broker_find(const char *url, struct idem_error *err) {
    size_t len = strcspn(url, ":"), at = 0;
    char known[128] = "none in this build", quoted[IDEM_QUOTE_TEXT];

    for (size_t i = 0; brokers[i] != NULL; i++) {
        for (const char *const *scheme = brokers[i]->schemes; *scheme != NULL; scheme++) {
            if (url[len] == ':' && scheme_is(url, len, *scheme))
                return brokers[i];
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
