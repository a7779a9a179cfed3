/*
 * Threads for work that blocks. An eventfd reports the end; the last of thread and owner releases
 * the state that they share. Fails if there is no memory, descriptor or thread.
 */
#include "loop/offload.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

#define EXIT_WAIT_MS 1000

struct offload_job {
    atomic_int holders;
    int event;
    const struct idem_offload_kind *kind;
    void *shared;
};

struct idem_offload {
    struct idem_loop *loop;
    struct idem_fd fd;
    struct offload_job *job;
    void (*done)(void *data);
    void *data;
};

/* The number of running threads. Their libraries (OpenSSL, the resolver) free their tables at
   exit, so the process waits for threads that are nearly done, for EXIT_WAIT_MS at most. The
   other threads are blocked. */
static atomic_int running;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void offload_exit_wait(void) {
    for (int ms = 0; running > 0 && ms < EXIT_WAIT_MS; ms++)
        usleep(1000);
}

/* A child has no such threads. */
static void offload_child_reset(void) {
    running = 0;
}

static void offload_watch(void) {
    (void)pthread_atfork(NULL, NULL, offload_child_reset);
    (void)atexit(offload_exit_wait);
}

/* Keeps OpenSSL from freeing its tables at exit: a thread in a TLS handshake would crash. The
   first call to OpenSSL decides, so this runs before main(). If the host used OpenSSL before it
   loaded this library (nginx), only offload_exit_wait() helps. */
__attribute__((constructor)) static void offload_openssl_keep(void) {
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void offload_job_leave(struct offload_job *job) {
    if (atomic_fetch_sub(&job->holders, 1) != 1)
        return;
    job->kind->release(job->shared);
    close(job->event);
    free(job);
}

static void *offload_job_main(void *data) {
    struct offload_job *job = data;
    static const uint64_t one = 1;
    ssize_t n;

    job->kind->work(job->shared);
    n = write(job->event, &one, sizeof(one));
    (void)n; /* a write to an eventfd at 0 cannot fail */
    offload_job_leave(job);
    running--;
    return NULL;
}

static void offload_job_ready(struct idem_fd *fd, int events) {
    struct idem_offload *offload = idem_container_of(fd, struct idem_offload, fd);
    uint64_t count;

    (void)events;
    if (read(fd->fd, &count, sizeof(count)) == sizeof(count))
        offload->done(offload->data);
}

static int offload_job_start(struct offload_job *job) {
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    pthread_once(&once, offload_watch);
    if (pthread_attr_init(&attr) != 0)
        return -1;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    running++;
    rc = idem_thread_start(&thread, &attr, offload_job_main, job);
    if (rc != 0)
        running--;
    pthread_attr_destroy(&attr);
    return rc;
}

static struct offload_job *offload_job_new(const struct idem_offload_kind *kind, void *shared) {
    struct offload_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return NULL;
    job->holders = 1;
    job->kind = kind;
    job->shared = shared;
    job->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->event >= 0)
        return job;
    free(job);
    return NULL;
}

struct idem_offload *idem_offload_new(struct idem_loop *loop, const struct idem_offload_kind *kind,
                                      void *shared, void (*done)(void *data), void *data) {
    struct idem_offload *offload = calloc(1, sizeof(*offload));
    struct offload_job *job = offload == NULL ? NULL : offload_job_new(kind, shared);

    if (job == NULL) {
        free(offload);
        kind->release(shared);
        return NULL;
    }
    *offload = (struct idem_offload){.loop = loop, .job = job, .done = done, .data = data};
    offload->fd.fd = job->event;
    offload->fd.ready = offload_job_ready;
    if (idem_loop_watch(loop, &offload->fd, IDEM_READ) == 0) {
        job->holders = 2;
        if (offload_job_start(job) == 0)
            return offload;
        job->holders = 1;
        idem_loop_unwatch(loop, &offload->fd);
    }
    offload_job_leave(job);
    free(offload);
    return NULL;
}

void idem_offload_free(struct idem_offload *offload) {
    if (offload == NULL)
        return;
    idem_loop_unwatch(offload->loop, &offload->fd);
    offload_job_leave(offload->job);
    free(offload);
}
