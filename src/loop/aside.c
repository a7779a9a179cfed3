/*
 * Threads beside the loop. The end is told through an eventfd; what thread and owner share is
 * released by the one who lets go last. Fails where there is no memory, descriptor or thread.
 */
#include "loop/aside.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EXIT_WAIT_MS 1000

struct errand {
    atomic_int holders;
    int event;
    const struct idem_aside_kind *kind;
    void *shared;
};

struct idem_aside {
    struct idem_loop *loop;
    struct idem_fd fd;
    struct errand *errand;
    void (*done)(void *data);
    void *data;
};

/* Threads that are at work. Their libraries (OpenSSL, the resolver) free their tables when the
   process ends: it waits for threads that are nearly done. The others are blocked. */
static atomic_int working;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void working_wait(void) {
    for (int ms = 0; working > 0 && ms < EXIT_WAIT_MS; ms++)
        usleep(1000);
}

/* A child has none of them. */
static void working_forget(void) {
    working = 0;
}

static void working_watch(void) {
    (void)pthread_atfork(NULL, NULL, working_forget);
    (void)atexit(working_wait);
}

/* Keeps OpenSSL from freeing its tables at exit, while a thread is in a TLS handshake: the thread
   would crash. The first call to OpenSSL decides, so this runs before main(). In a host that used
   OpenSSL before it loaded this library (nginx), only working_wait() helps. */
__attribute__((constructor)) static void openssl_stay(void) {
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void errand_leave(struct errand *errand) {
    if (atomic_fetch_sub(&errand->holders, 1) != 1)
        return;
    errand->kind->release(errand->shared);
    close(errand->event);
    free(errand);
}

static void *errand_main(void *data) {
    struct errand *errand = data;
    static const uint64_t one = 1;
    ssize_t n;

    errand->kind->work(errand->shared);
    n = write(errand->event, &one, sizeof(one));
    (void)n; /* to an eventfd at 0 it cannot fail */
    errand_leave(errand);
    working--;
    return NULL;
}

static void errand_ready(struct idem_fd *fd, int events) {
    struct idem_aside *aside = idem_container_of(fd, struct idem_aside, fd);
    uint64_t count;

    (void)events;
    if (read(fd->fd, &count, sizeof(count)) == sizeof(count))
        aside->done(aside->data);
}

/* No signal of the program's is taken there. */
static int thread_start(struct errand *errand) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_once(&once, working_watch);
    if (pthread_attr_init(&attr) != 0)
        return -1;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    working++;
    rc = pthread_create(&thread, &attr, errand_main, errand);
    if (rc != 0)
        working--;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

static struct errand *errand_new(const struct idem_aside_kind *kind, void *shared) {
    struct errand *errand = calloc(1, sizeof(*errand));

    if (errand == NULL)
        return NULL;
    errand->holders = 1;
    errand->kind = kind;
    errand->shared = shared;
    errand->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (errand->event >= 0)
        return errand;
    free(errand);
    return NULL;
}

struct idem_aside *idem_aside_new(struct idem_loop *loop, const struct idem_aside_kind *kind,
                                  void *shared, void (*done)(void *data), void *data) {
    struct idem_aside *aside = calloc(1, sizeof(*aside));
    struct errand *errand = aside == NULL ? NULL : errand_new(kind, shared);

    if (errand == NULL) {
        free(aside);
        kind->release(shared);
        return NULL;
    }
    *aside = (struct idem_aside){.loop = loop, .errand = errand, .done = done, .data = data};
    aside->fd.fd = errand->event;
    aside->fd.ready = errand_ready;
    if (idem_loop_watch(loop, &aside->fd, IDEM_READ) == 0) {
        errand->holders = 2;
        if (thread_start(errand) == 0)
            return aside;
        errand->holders = 1;
        idem_loop_unwatch(loop, &aside->fd);
    }
    errand_leave(errand);
    free(aside);
    return NULL;
}

void idem_aside_free(struct idem_aside *aside) {
    if (aside == NULL)
        return;
    idem_loop_unwatch(aside->loop, &aside->fd);
    errand_leave(aside->errand);
    free(aside);
}
