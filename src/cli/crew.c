/*
 * Threads that share a list of jobs. Cannot fail: whoever is there does the work.
 */
#include "cli/crew.h"

#include <pthread.h>
#include <stdatomic.h>

struct crew {
    atomic_size_t next;
    size_t n;
    void (*each)(void *data, size_t i);
    void *data;
};

static void *hand(void *shared) {
    struct crew *crew = shared;
    size_t i;

    while ((i = atomic_fetch_add(&crew->next, 1)) < crew->n)
        crew->each(crew->data, i);
    return NULL;
}

void cli_crew(size_t n, void (*each)(void *data, size_t i), void *data) {
    struct crew crew = {.n = n, .each = each, .data = data};
    pthread_t threads[CLI_CREW_MAX];
    size_t hands = 0;

    while (hands < CLI_CREW_MAX - 1 && hands + 1 < n &&
           pthread_create(&threads[hands], NULL, hand, &crew) == 0)
        hands++;
    hand(&crew);
    while (hands > 0)
        pthread_join(threads[--hands], NULL);
}
