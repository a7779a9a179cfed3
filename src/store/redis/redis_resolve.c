/*
 * Name lookups off the loop: getaddrinfo(3) in a thread of its own.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "loop/offload.h"
#include "store/redis/redis_connection.h"

/* Shared by the thread and the owner. */
struct lookup {
    char name[256], port[8];
    struct sockaddr_storage addresses[REDIS_ADDRESSES_MAX];
    size_t n;
    int why; /* of getaddrinfo() */
};

struct redis_resolve {
    struct idem_aside *aside;
    struct lookup *lookup;
    redis_resolved_fn *done;
    void *data;
};

static void resolve_work(void *shared) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct lookup *lookup = shared;

    lookup->why = getaddrinfo(lookup->name, lookup->port, &hints, &list);
    for (struct addrinfo *at = list; at != NULL && lookup->n < REDIS_ADDRESSES_MAX;
         at = at->ai_next)
        memcpy(&lookup->addresses[lookup->n++], at->ai_addr, at->ai_addrlen);
    if (list != NULL)
        freeaddrinfo(list);
}

static void resolve_done(void *data) {
    struct redis_resolve *resolve = data;
    struct lookup *lookup = resolve->lookup;
    struct sockaddr_storage addresses[REDIS_ADDRESSES_MAX];
    size_t n = lookup->n;

    memcpy(addresses, lookup->addresses, sizeof(addresses));
    resolve->done(resolve->data, addresses, n, n == 0 ? gai_strerror(lookup->why) : NULL);
}

struct redis_resolve *redis_resolve_new(struct idem_loop *loop, const struct idem_host_name *host,
                                        redis_resolved_fn *done, void *data,
                                        struct idem_error *err) {
    static const struct idem_aside_kind kind = {resolve_work, free};
    struct redis_resolve *resolve = calloc(1, sizeof(*resolve));
    struct lookup *lookup = resolve == NULL ? NULL : calloc(1, sizeof(*lookup));

    if (lookup == NULL) {
        free(resolve);
        idem_error_set(err, IDEM_E_NOMEM, "no memory to look a name up");
        return NULL;
    }
    snprintf(lookup->name, sizeof(lookup->name), "%s", host->name);
    snprintf(lookup->port, sizeof(lookup->port), "%u", host->port);
    *resolve = (struct redis_resolve){.lookup = lookup, .done = done, .data = data};
    resolve->aside = idem_aside_new(loop, &kind, lookup, resolve_done, resolve);
    if (resolve->aside != NULL)
        return resolve;
    free(resolve);
    idem_error_set(err, IDEM_E_REFUSED, "no descriptor or no thread to look a name up");
    return NULL;
}

void redis_resolve_free(struct redis_resolve *resolve) {
    if (resolve == NULL)
        return;
    idem_aside_free(resolve->aside);
    free(resolve);
}
