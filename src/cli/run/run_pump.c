/*
 * The thread of a pump. Starting it fails without memory, descriptors or threads. After a failed
 * write the pump takes nothing more.
 */
#include "cli/run/run_pump.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/run/run_replay.h"

#define PIECE 16384

struct cli_pump {
    int fd;
    int idle_fd;    /* an eventfd: readable while no piece is being written */
    unsigned users; /* only the thread that made it changes this */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t changed;
    bool busy, stop;
    int fault; /* an errno */
    size_t len;
    unsigned char piece[PIECE];
};

static void pump_idle_set(const struct cli_pump *pump) {
    uint64_t one = 1;

    while (write(pump->idle_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void pump_idle_clear(const struct cli_pump *pump) {
    uint64_t n;

    while (read(pump->idle_fd, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

/* While `busy` is set, the piece belongs to the thread. */
static void *run_pump_main(void *data) {
    struct cli_pump *pump = data;
    int fault;

    pthread_mutex_lock(&pump->lock);
    for (;;) {
        while (!pump->busy && !pump->stop)
            pthread_cond_wait(&pump->changed, &pump->lock);
        if (!pump->busy)
            break;
        pthread_mutex_unlock(&pump->lock);
        fault = cli_write_all(pump->fd, pump->piece, pump->len) ? 0 : errno;
        pthread_mutex_lock(&pump->lock);
        pump->fault = fault;
        pump->busy = false;
        pump_idle_set(pump);
    }
    pthread_mutex_unlock(&pump->lock);
    return NULL;
}

struct cli_pump *cli_pump_new(int fd) {
    struct cli_pump *pump = calloc(1, sizeof(*pump));
    int why;

    if (pump == NULL)
        return NULL;
    pump->fd = fd;
    pump->users = 1;
    pump->idle_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pump->idle_fd < 0) {
        free(pump);
        return NULL;
    }
    pthread_mutex_init(&pump->lock, NULL);
    pthread_cond_init(&pump->changed, NULL);
    why = pthread_create(&pump->thread, NULL, run_pump_main, pump);
    if (why == 0)
        return pump;
    close(pump->idle_fd);
    free(pump);
    errno = why;
    return NULL;
}

struct cli_pump *cli_pump_share(struct cli_pump *pump) {
    pump->users++;
    return pump;
}

void cli_pump_free(struct cli_pump *pump) {
    bool busy;

    if (pump == NULL || --pump->users != 0)
        return;
    pthread_mutex_lock(&pump->lock);
    busy = pump->busy;
    pump->stop = true;
    pthread_cond_signal(&pump->changed);
    pthread_mutex_unlock(&pump->lock);
    if (busy) {
        pthread_detach(pump->thread);
        return;
    }
    pthread_join(pump->thread, NULL);
    pthread_cond_destroy(&pump->changed);
    pthread_mutex_destroy(&pump->lock);
    close(pump->idle_fd);
    free(pump);
}

int cli_pump_state(struct cli_pump *pump) {
    int state;

    pthread_mutex_lock(&pump->lock);
    state = pump->busy ? 0 : pump->fault != 0 ? -1 : 1;
    if (state < 0)
        errno = pump->fault;
    pthread_mutex_unlock(&pump->lock);
    return state;
}

ssize_t cli_pump_write(struct cli_pump *pump, const void *bytes, size_t len) {
    int state = cli_pump_state(pump);

    if (state == 0)
        errno = EAGAIN;
    if (state <= 0)
        return -1;
    if (len > PIECE)
        len = PIECE;
    pthread_mutex_lock(&pump->lock);
    memcpy(pump->piece, bytes, len);
    pump->len = len;
    pump->busy = true;
    pump_idle_clear(pump);
    pthread_cond_signal(&pump->changed);
    pthread_mutex_unlock(&pump->lock);
    return (ssize_t)len;
}

int cli_pump_fd(const struct cli_pump *pump) {
    return pump->idle_fd;
}
