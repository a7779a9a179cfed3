/*
 * Waiting for a condition. A test never waits for time: it polls the condition,
 * under a limit that only a failure reaches.
 */
#ifndef IDEM_TEST_WAIT_H
#define IDEM_TEST_WAIT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_LIMIT_S 120

static inline int64_t wait_now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline void wait_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); /* sleep: the step of a poll */
}

/* The pause between two checks of a condition. */
static inline void wait_step(void) {
    wait_us(2000); /* sleep: the step of a poll */
}

static inline void wait_check(int64_t end, const char *file, int line, const char *condition) {
    if (wait_now_ms() <= end)
        return;
    fprintf(stderr, "# %s:%d: not within %d s: %s\n", file, line, WAIT_LIMIT_S, condition);
    exit(1);
}

/* Ends the test unless the condition comes true, by doing the step again and again. */
#define WAIT_BY(step, condition)                                                                   \
    do {                                                                                           \
        int64_t wait_end_ = wait_now_ms() + WAIT_LIMIT_S * 1000;                                   \
        while (!(condition)) {                                                                     \
            wait_check(wait_end_, __FILE__, __LINE__, #condition);                                 \
            step;                                                                                  \
        }                                                                                          \
    } while (0)

/* The interval after one of `us` microseconds: the intervals grow, because some conditions are
 * expensive. */
static inline long wait_longer(long us) {
    wait_us(us); /* sleep: the step of a poll */
    return us < 20000 ? us * 3 / 2 : us;
}

/* Ends the test unless the condition comes true. It is evaluated again and again. */
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        long wait_us_ = 1000;                                                                      \
        WAIT_BY(wait_us_ = wait_longer(wait_us_), condition);                                      \
    } while (0)

#endif
