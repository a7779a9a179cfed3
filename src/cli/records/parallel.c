/*
 * Threads that share a list of jobs. Cannot fail: the threads that could be started, at least the
 * caller's, do all the work.
 */
#include "cli/records/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

struct crew {
    atomic_size_t next;
    size_t n;
    void (*each)(void *data, size_t i);
    void *data;
};

static void *parallel_work(void *shared) {
    struct crew *crew = shared;
    size_t i;

    while ((i = atomic_fetch_add(&crew->next, 1)) < crew->n)
        crew->each(crew->data, i);
    return NULL;
}

void cli_crew(size_t n, void (*each)(void *data, size_t i), void *data) {
    struct crew crew = {.n = n, .each = each, .data = data};
    pthread_t threads[CLI_CREW_MAX];
    size_t started = 0;

    while (started < CLI_CREW_MAX - 1 && started + 1 < n &&
           pthread_create(&threads[started], NULL, parallel_work, &crew) == 0)
        started++;
    parallel_work(&crew);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}
