/*
 * Threads that share a list of jobs. Cannot fail: the threads that could be started, at least the
 * caller's, do all the work.
 */
#include "cli/records/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

struct parallel {
    atomic_size_t next;
    size_t n;
    void (*each)(void *data, size_t i);
    void *data;
};

static void *parallel_work(void *shared) {
    struct parallel *parallel = shared;
    size_t i;

    while ((i = atomic_fetch_add(&parallel->next, 1)) < parallel->n)
        parallel->each(parallel->data, i);
    return NULL;
}

void cli_parallel(size_t n, void (*each)(void *data, size_t i), void *data) {
    struct parallel parallel = {.n = n, .each = each, .data = data};
    pthread_t threads[CLI_PARALLEL_MAX];
    size_t started = 0;

    while (started < CLI_PARALLEL_MAX - 1 && started + 1 < n &&
           pthread_create(&threads[started], NULL, parallel_work, &parallel) == 0)
        started++;
    parallel_work(&parallel);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}
