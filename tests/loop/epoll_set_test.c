/*
 * Descriptors in a set that is one to the loop: pipes, of which some are ready at
 * the same time.
 */
#include "loop/epoll_set.h"

#include <fcntl.h>

#include "loop/poll.h"
#include "test.h"

struct rig {
    struct idem_poll poll;
    struct idem_loop loop;
    struct idem_epoll_set *epoll_set;
};

struct pair {
    struct idem_fd fd;
    struct rig *rig;
    struct pair *others; /* which its callback takes out; NULL: none */
    int others_n, end, told, events;
    bool close_all;
};

static void rig_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void rig_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void rig_open(struct rig *rig) {
    struct idem_host host;
    struct idem_error err;

    idem_poll_init(&rig->poll);
    rig->poll.ready = rig_ready;
    rig->poll.timeout = rig_timeout;
    rig->poll.sink = &rig->loop;
    host = idem_poll_host(&rig->poll);
    idem_loop_init(&rig->loop, &host);
    rig->epoll_set = malloc(sizeof(*rig->epoll_set));
    CHECK(rig->epoll_set != NULL);
    CHECK_INT(idem_epoll_set_open(rig->epoll_set, &rig->loop, &err), 0);
}

static void rig_close(struct rig *rig) {
    if (rig->epoll_set != NULL)
        idem_epoll_set_close(rig->epoll_set);
    free(rig->epoll_set);
    rig->epoll_set = NULL;
}

static void rig_release(struct rig *rig) {
    rig_close(rig);
    idem_poll_release(&rig->poll);
}

static void pair_ready(struct idem_fd *fd, int events) {
    struct pair *pair = idem_container_of(fd, struct pair, fd);
    char byte;

    pair->told++;
    pair->events = events;
    if (events & IDEM_READ)
        (void)!read(fd->fd, &byte, 1);
    if (pair->close_all) {
        rig_close(pair->rig);
        return;
    }
    for (int i = 0; i < pair->others_n; i++)
        if (&pair->others[i] != pair && pair->others[i].fd.fd >= 0) {
            idem_epoll_set_unwatch(pair->rig->epoll_set, &pair->others[i].fd);
            close(pair->others[i].fd.fd);
            pair->others[i].fd.fd = -1;
        }
}

static void pair_open(struct pair *pair, struct rig *rig) {
    int ends[2];

    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    *pair = (struct pair){.fd = {.fd = ends[0], .ready = pair_ready}, .rig = rig, .end = ends[1]};
    CHECK_INT(idem_epoll_set_watch(rig->epoll_set, &pair->fd, IDEM_READ), 0);
}

static void pair_write(struct pair *pair) {
    CHECK_INT(write(pair->end, "x", 1), 1);
}

TEST(more_descriptors_than_the_poll_loop_has_room_for_are_told) {
    static struct pair pairs[3 * IDEM_POLL_MAX];
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < 3 * IDEM_POLL_MAX; i++)
        pair_open(&pairs[i], &rig);
    for (int i = 0; i < 3 * IDEM_POLL_MAX; i++)
        pair_write(&pairs[i]);
    for (int i = 0; i < 8; i++)
        CHECK_INT(idem_poll_turn(&rig.poll, NULL, 0, 0), 0);
    for (int i = 0; i < 3 * IDEM_POLL_MAX; i++)
        CHECK_INT(pairs[i].told, 1);
    rig_release(&rig);
}

TEST(the_events_are_those_that_were_asked_for) {
    struct pair pair;
    struct rig rig;
    int ends[2];

    rig_open(&rig);
    pair_open(&pair, &rig);
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    idem_epoll_set_unwatch(rig.epoll_set, &pair.fd);
    pair.fd.fd = ends[1];
    CHECK_INT(idem_epoll_set_watch(rig.epoll_set, &pair.fd, IDEM_READ), 0);
    CHECK_INT(idem_poll_turn(&rig.poll, NULL, 0, 0), 0);
    CHECK_INT(pair.told, 0);
    CHECK_INT(idem_epoll_set_watch(rig.epoll_set, &pair.fd, IDEM_WRITE), 0);
    CHECK_INT(idem_poll_turn(&rig.poll, NULL, 0, 0), 0);
    CHECK_INT(pair.told, 1);
    CHECK_INT(pair.events, IDEM_WRITE);
    CHECK_INT(idem_epoll_set_watch(rig.epoll_set, &(struct idem_fd){.fd = 999}, IDEM_READ),
              IDEM_E_REFUSED);
    rig_release(&rig);
}

TEST(what_a_call_back_has_taken_out_is_not_told_any_more) {
    struct pair pairs[3];
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < 3; i++) {
        pair_open(&pairs[i], &rig);
        pairs[i].others = pairs;
        pairs[i].others_n = 3;
        pair_write(&pairs[i]);
    }
    for (int i = 0; i < 4; i++)
        CHECK_INT(idem_poll_turn(&rig.poll, NULL, 0, 0), 0);
    CHECK_INT(pairs[0].told + pairs[1].told + pairs[2].told, 1);
    rig_release(&rig);
}

TEST(the_set_may_be_closed_from_inside_a_call_back) {
    struct pair pairs[3];
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < 3; i++) {
        pair_open(&pairs[i], &rig);
        pairs[i].close_all = true;
        pair_write(&pairs[i]);
    }
    for (int i = 0; i < 4; i++)
        CHECK_INT(idem_poll_turn(&rig.poll, NULL, 0, 0), 0);
    CHECK_INT(pairs[0].told + pairs[1].told + pairs[2].told, 1);
    rig_release(&rig);
}

TEST_MAIN
