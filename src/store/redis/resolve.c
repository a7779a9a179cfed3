/*
 * Names, off the loop: getaddrinfo(3) in a thread of its own, whose end is told
 * through an eventfd. Whoever asked may lose interest at any time: what both
 * share is freed by the one who lets go last.
 */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/error.h"
#include "store/redis/redis.h"

#define ADDRESSES_MAX 8

/* What thread and owner share. */
struct lookup {
    atomic_int holders;
    int event;
    char name[256], port[8];
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    size_t n;
    int why; /* of getaddrinfo() */
};

struct redis_resolve {
    struct idem_loop *loop;
    struct idem_fd fd;
    struct lookup *lookup;
    redis_resolved_fn *done;
    void *data;
};

static void lookup_leave(struct lookup *lookup) {
    if (atomic_fetch_sub(&lookup->holders, 1) != 1)
        return;
    close(lookup->event);
    free(lookup);
}

static void *lookup_main(void *data) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct lookup *lookup = data;
    static const uint64_t one = 1;

    lookup->why = getaddrinfo(lookup->name, lookup->port, &hints, &list);
    for (struct addrinfo *at = list; at != NULL && lookup->n < ADDRESSES_MAX; at = at->ai_next)
        memcpy(&lookup->addresses[lookup->n++], at->ai_addr, at->ai_addrlen);
    if (list != NULL)
        freeaddrinfo(list);
    if (write(lookup->event, &one, sizeof(one)) < 0)
        lookup->why = EAI_SYSTEM;
    lookup_leave(lookup);
    return NULL;
}

static void lookup_ready(struct idem_fd *fd, int events) {
    struct redis_resolve *resolve = idem_container_of(fd, struct redis_resolve, fd);
    struct lookup *lookup = resolve->lookup;
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    size_t n = lookup->n;
    const char *why = n == 0 ? gai_strerror(lookup->why) : NULL;
    uint64_t count;

    (void)events;
    if (read(fd->fd, &count, sizeof(count)) < 0)
        return;
    memcpy(addresses, lookup->addresses, sizeof(addresses));
    resolve->done(resolve->data, addresses, n, why);
}

static int thread_start(struct lookup *lookup) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    if (pthread_attr_init(&attr) != 0)
        return -1;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, lookup_main, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

static struct lookup *lookup_new(const struct idem_host_name *host) {
    struct lookup *lookup = calloc(1, sizeof(*lookup));

    if (lookup == NULL)
        return NULL;
    lookup->holders = 1;
    lookup->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(lookup->name, sizeof(lookup->name), "%s", host->name);
    snprintf(lookup->port, sizeof(lookup->port), "%u", host->port);
    if (lookup->event >= 0)
        return lookup;
    free(lookup);
    return NULL;
}

struct redis_resolve *redis_resolve_new(struct idem_loop *loop, const struct idem_host_name *host,
                                        redis_resolved_fn *done, void *data,
                                        struct idem_error *err) {
    struct redis_resolve *resolve = calloc(1, sizeof(*resolve));
    struct lookup *lookup = resolve == NULL ? NULL : lookup_new(host);

    if (lookup == NULL) {
        free(resolve);
        idem_error_set(err, IDEM_E_NOMEM, "no memory or no descriptor to look a name up");
        return NULL;
    }
    *resolve = (struct redis_resolve){
        .loop = loop, .lookup = lookup, .done = done, .data = data, .fd.ready = lookup_ready};
    resolve->fd.fd = lookup->event;
    if (idem_loop_watch(loop, &resolve->fd, IDEM_READ) == 0) {
        lookup->holders = 2;
        if (thread_start(lookup) == 0)
            return resolve;
        lookup->holders = 1;
        idem_loop_unwatch(loop, &resolve->fd);
    }
    lookup_leave(lookup);
    free(resolve);
    idem_error_set(err, IDEM_E_REFUSED, "no thread to look a name up");
    return NULL;
}

void redis_resolve_free(struct redis_resolve *resolve) {
    if (resolve == NULL)
        return;
    idem_loop_unwatch(resolve->loop, &resolve->fd);
    lookup_leave(resolve->lookup);
    free(resolve);
}
