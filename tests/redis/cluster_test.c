/*
 * A cluster that changes under load: slots that move while they are in use, a
 * server that dies and comes back. No error reaches who asks.
 */
#include <limits.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "../store/ask.h"
#include "farm.h"
#include "store/redis/store.h"
#include "temp.h"

#define LOADERS 2
#define MOVES 12

static struct farm farm;
static char url[600];

static void farm_begin(const char *options) {
    farm_start(&farm, FARM_CLUSTER, temp_folder(), -1);
    farm_url(&farm, options, url, sizeof(url));
}

static const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *format, ...) {
    static char texts[16][200];
    static unsigned turn;
    char *at = texts[turn++ % 16];
    va_list args;

    va_start(args, format);
    vsnprintf(at, sizeof(texts[0]), format, args);
    va_end(args);
    return at;
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Keys under this prefix are all in one slot. */
#define BUSY_PREFIX "{busy}:"

static unsigned busy_slot(void) {
    return redis_slot(BUSY_PREFIX "x", sizeof(BUSY_PREFIX));
}

/* Servers, as they are told. */

static void tell(size_t i, const char *first, ...) __attribute__((sentinel));
static void tell(size_t i, const char *first, ...) {
    const char *words[8] = {first};
    char reply[200];
    va_list args;
    int n = 1;

    va_start(args, first);
    while (n < 8 && (words[n] = va_arg(args, const char *)) != NULL)
        n++;
    va_end(args);
    server_ask(&farm.servers[i], reply, sizeof(reply), words[0], words[1], words[2], words[3],
               words[4], words[5], words[6], words[7], NULL);
    if (reply[0] == '-')
        fprintf(stderr, "# server %zu: %s %s: %s", i, words[0], words[1], reply);
    CHECK(reply[0] != '-');
}

static const char *id_of(size_t i) {
    char reply[200];

    server_ask(&farm.servers[i], reply, sizeof(reply), "CLUSTER", "MYID", NULL);
    CHECK(strncmp(reply, "$40\r\n", 5) == 0);
    return text("%.40s", reply + 5);
}

#define BATCH 16

/* Moves what keys of the slot there are, a few at a time, up to so many or a few more; how many. */
static unsigned keys_move(unsigned slot, size_t from, size_t to, unsigned most) {
    char reply[4096], names[BATCH][100], port[16];
    unsigned all = 0;

    snprintf(port, sizeof(port), "%d", farm.servers[to].port);
    for (;;) {
        const char *k[BATCH + 1] = {NULL}, *at = reply;
        int n = 0;

        server_ask(&farm.servers[from], reply, sizeof(reply), "CLUSTER", "GETKEYSINSLOT",
                   text("%u", slot), text("%d", BATCH), NULL);
        while (n < BATCH && (at = strstr(at, "\n" BUSY_PREFIX)) != NULL) {
            at++;
            snprintf(names[n], sizeof(names[n]), "%.*s", (int)strcspn(at, "\r"), at);
            k[n] = names[n];
            n++;
        }
        if (n == 0 || all >= most)
            return all;
        server_ask(&farm.servers[from], reply, sizeof(reply), "MIGRATE", "127.0.0.1", port, "", "0",
                   "5000", "KEYS", k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8], k[9],
                   k[10], k[11], k[12], k[13], k[14], k[15], NULL);
        CHECK(reply[0] == '+');
        all += (unsigned)n;
    }
}

static void move_begin(unsigned slot, size_t from, size_t to) {
    char number[16];

    snprintf(number, sizeof(number), "%u", slot);
    tell(to, "CLUSTER", "SETSLOT", number, "IMPORTING", id_of(from), NULL);
    tell(from, "CLUSTER", "SETSLOT", number, "MIGRATING", id_of(to), NULL);
}

static void move_end(unsigned slot, size_t from, size_t to, size_t third) {
    char number[16], id[48];

    snprintf(number, sizeof(number), "%u", slot);
    snprintf(id, sizeof(id), "%s", id_of(to));
    tell(to, "CLUSTER", "SETSLOT", number, "NODE", id, NULL);
    tell(from, "CLUSTER", "SETSLOT", number, "NODE", id, NULL);
    tell(third, "CLUSTER", "SETSLOT", number, "NODE", id, NULL);
}

static unsigned slot_move(unsigned slot, size_t from, size_t to, size_t third) {
    unsigned n;

    move_begin(slot, from, to);
    pause_ms(30); /* here every new key is asked for on the other side */
    n = keys_move(slot, from, to, UINT_MAX);
    pause_ms(30);
    n += keys_move(slot, from, to, UINT_MAX);
    move_end(slot, from, to, third);
    return n;
}

static unsigned long errors_of(const char *word) {
    char reply[8192], mark[64];
    unsigned long n = 0;

    snprintf(mark, sizeof(mark), "errorstat_%s:count=", word);
    for (size_t i = 0; i < farm.servers_n; i++) {
        const char *at;

        server_ask(&farm.servers[i], reply, sizeof(reply), "INFO", "errorstats", NULL);
        at = strstr(reply, mark);
        n += at == NULL ? 0 : strtoul(at + strlen(mark), NULL, 10);
    }
    return n;
}

/* Load. */

struct load {
    _Atomic bool stop;
    _Atomic unsigned long pairs, replays;
};

static void prefix_set(struct call *call, const char *key) {
    call->op.key = key_in(BUSY_PREFIX, key);
}

static struct answer asked(struct call *call) {
    struct answer a;

    (void)call_run(call);
    a = answer_of(call);
    if (a.rc != 0)
        fprintf(stderr, "# %d: %s\n", a.rc, a.text);
    CHECK_INT(a.rc, 0);
    return a;
}

/* A few at once, so that redirections meet pipelines. */
static void load_round(struct load *load, struct conn *c, unsigned who, unsigned round) {
    struct call calls[8];
    struct call call;
    unsigned n = sizeof(calls) / sizeof(calls[0]);

    for (unsigned i = 0; i < n; i++) {
        claim_fill(&calls[i], c, "", who + 1);
        prefix_set(&calls[i], text("k%u-%u-%u", who, round, i));
        CHECK_INT(call_submit(&calls[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        struct answer a = answer_wait(&calls[i]);

        if (a.rc != 0)
            fprintf(stderr, "# %d: %s\n", a.rc, a.text);
        CHECK_INT(a.rc, 0);
        CHECK_INT(a.verdict, IDEM_RUN);
        CHECK_INT(a.attempt, 1);
        done_fill(&call, c, "", who + 1, "result");
        prefix_set(&call, text("k%u-%u-%u", who, round, i));
        CHECK_INT(asked(&call).ack, IDEM_ACK);
        load->pairs++;
    }
    if (round > 0) {
        claim_fill(&call, c, "", who + 100);
        prefix_set(&call, text("k%u-%u-%u", who, round / 2, round % n));
        CHECK_STR(asked(&call).result, "result");
        load->replays++;
    }
    /* Counters and nonces are not repeatable: redirections must not make them unknown. */
    count_fill(&call, c, "", 1);
    prefix_set(&call, text("c%u", who));
    CHECK_INT(asked(&call).rc, 0);
    CHECK_INT(call.op.out.count.value, round + 1);
    once_fill(&call, c, "");
    prefix_set(&call, text("o%u-%u", who, round));
    CHECK_INT(asked(&call).rc, 0);
    CHECK(call.op.out.once.first);
    keep_reset();
}

static void loader(struct load *load, unsigned who) {
    struct conn c;

    conn_open(&c, url, who % 2 == 0 ? HOST_POLL : HOST_EDGE, NULL);
    for (unsigned round = 0; !load->stop; round++) {
        load_round(load, &c, who, round);
        pause_ms(2);
    }
    conn_close(&c);
}

TEST_IN(slots_that_move_under_load_are_followed_and_nobody_sees_it, 120) {
    struct load *load =
        mmap(NULL, sizeof(*load), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[LOADERS];
    unsigned slot = busy_slot(), moved = 0;
    size_t at = slot * 3 / REDIS_SLOTS;

    CHECK(load != MAP_FAILED);
    farm_begin("&timeout=20s");
    fflush(NULL);
    for (unsigned i = 0; i < LOADERS; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            loader(load, i);
            exit(0);
        }
    }
    while (load->pairs < 50)
        pause_ms(10);
    for (unsigned i = 0; i < MOVES; i++) {
        unsigned long before = load->pairs;

        moved += slot_move(slot, at, (at + 1) % 3, (at + 2) % 3);
        at = (at + 1) % 3;
        for (int k = 0; k < 2000 && load->pairs < before + 20; k++) {
            CHECK_INT(waitpid(-1, NULL, WNOHANG), 0); /* none has found anything */
            pause_ms(10);
        }
        CHECK(load->pairs >= before + 20);
    }
    load->stop = true;
    for (unsigned i = 0; i < LOADERS; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    fprintf(stderr, "# %lu pairs, %lu replays, %u records moved, %lu MOVED, %lu ASK\n", load->pairs,
            load->replays, moved, errors_of("MOVED"), errors_of("ASK"));
    CHECK(moved > MOVES);
    CHECK(errors_of("MOVED") > 0);
    CHECK(errors_of("ASK") > 0);
    farm_stop(&farm);
}

#define RECORDS 60

static void busy_done(struct conn *c, const char *key) {
    struct call call;

    claim_fill(&call, c, "", 1);
    prefix_set(&call, key);
    CHECK_INT(asked(&call).verdict, IDEM_RUN);
    done_fill(&call, c, "", 1, "result");
    prefix_set(&call, key);
    CHECK_INT(asked(&call).ack, IDEM_ACK);
}

/* Every record is told, and once: nothing moves meanwhile. */
static void busy_listed(struct conn *c) {
    static char hashes[2 * RECORDS][IDEM_HEX_LEN + 1];
    struct idem_cursor cursor = {0};
    struct call call;
    size_t n = 0;

    while (!cursor.end) {
        kind_fill(&call, c, IDEM_OP_LIST, "");
        call.op.in.list.prefix = bytes_of(BUSY_PREFIX);
        call.op.in.list.cursor = cursor;
        call.op.in.list.max = 7;
        CHECK_INT(asked(&call).rc, 0);
        for (size_t i = 0; i < call.op.out.list.n; i++, n++) {
            CHECK(n < RECORDS);
            for (size_t k = 0; k < n; k++)
                CHECK(strcmp(hashes[k], call.entries[i].hash) != 0);
            memcpy(hashes[n], call.entries[i].hash, sizeof(hashes[n]));
        }
        cursor = call.op.out.list.cursor;
    }
    CHECK_INT(n, RECORDS);
    kind_fill(&call, c, IDEM_OP_STATS, "");
    CHECK_INT(asked(&call).rc, 0);
    CHECK_INT(call.op.out.stats.done, RECORDS);
}

TEST_IN(a_list_and_stats_leave_nothing_out_while_a_slot_is_on_two_servers, 120) {
    unsigned slot = busy_slot(), moved;
    size_t at = slot * 3 / REDIS_SLOTS, to = (at + 1) % 3, third = (at + 2) % 3;
    struct conn c;

    farm_begin("&timeout=20s");
    conn_open(&c, url, HOST_POLL, NULL);
    for (unsigned i = 0; i < RECORDS; i++)
        busy_done(&c, text("k%u", i));
    busy_listed(&c);
    for (int turn = 0; turn < 2; turn++) { /* there, and back: whichever is gone through first */
        move_begin(slot, at, to);
        busy_listed(&c);
        moved = keys_move(slot, at, to, RECORDS / 2);
        CHECK(moved >= RECORDS / 2 && moved < RECORDS);
        busy_listed(&c);
        (void)keys_move(slot, at, to, UINT_MAX);
        busy_listed(&c);
        move_end(slot, at, to, third);
        busy_listed(&c);
        at = to;
        to = (at + 2) % 3;
        third = (at + 1) % 3;
    }
    conn_close(&c);
    farm_stop(&farm);
}

struct waiter {
    struct idem_watch watch;
    unsigned wakes;
};

static void on_wake(struct idem_watch *watch) {
    ((struct waiter *)watch)->wakes++;
}

static void woken_wait(struct waiter *waiter, struct conn *c) {
    int64_t end = idem_loop_now() + 30000;

    while (waiter->wakes == 0 && idem_loop_now() < end)
        conn_turn(c, 50);
    CHECK(waiter->wakes > 0);
}

TEST_IN(a_waiter_is_woken_after_its_slot_has_moved, 120) {
    struct waiter waiter = {.watch = {.key = key_in(BUSY_PREFIX, "k"), .wake = on_wake}};
    unsigned slot = busy_slot();
    size_t at = slot * 3 / REDIS_SLOTS;
    struct conn waits, works;

    farm_begin("&timeout=20s");
    conn_open(&waits, url, HOST_POLL, NULL);
    conn_open(&works, url, HOST_POLL, NULL);
    CHECK_INT(waits.store->driver->watch(waits.store, &waiter.watch), 0);
    woken_wait(&waiter, &waits);
    waiter.wakes = 0;
    (void)slot_move(slot, at, (at + 1) % 3, (at + 2) % 3);
    woken_wait(&waiter, &waits); /* the wish is in force there */
    conn_idle(&waits, 100);
    waiter.wakes = 0;
    busy_done(&works, "k");
    woken_wait(&waiter, &waits);
    waits.store->driver->unwatch(waits.store, &waiter.watch);
    conn_close(&waits);
    conn_close(&works);
    farm_stop(&farm);
}

/* A key whose slot the server has. */
static const char *key_on(size_t server, unsigned nth) {
    char name[100];

    for (unsigned i = 0;; i++) {
        const char *key = text("on%u", i);

        name_of(key, name, sizeof(name));
        if (redis_slot(name, strlen(name)) * (size_t)3 / REDIS_SLOTS == server && nth-- == 0)
            return key;
    }
}

static void state_wait(size_t i, const char *state) {
    char reply[4096];

    for (int k = 0; k < 2000; k++) {
        server_ask(&farm.servers[i], reply, sizeof(reply), "CLUSTER", "INFO", NULL);
        if (strstr(reply, state) != NULL)
            return;
        pause_ms(20);
    }
    fprintf(stderr, "# %s\n", "the cluster's state");
    CHECK(false);
}

TEST_IN(a_cluster_that_is_down_is_waited_for, 120) {
    struct call lost, down;
    struct answer a;
    struct conn c;

    farm_begin("&timeout=60s");
    conn_open(&c, url, HOST_EDGE, NULL);
    for (size_t i = 0; i < 3; i++)
        run_done(&c, key_on(i, 0), 1, "r");
    server_stop(&farm.servers[0]);
    claim_fill(&lost, &c, key_on(0, 1), 1);
    CHECK_INT(call_submit(&lost), 0);
    state_wait(1, "cluster_state:fail");
    claim_fill(&down, &c, key_on(1, 1), 1);
    CHECK_INT(call_submit(&down), 0);
    conn_idle(&c, 300);
    CHECK_INT(lost.completed, 0);
    CHECK_INT(down.completed, 0);
    farm_restart(&farm, 0);
    while (lost.completed == 0 || down.completed == 0)
        conn_turn(&c, 1000);
    a = answer_of(&lost);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    a = answer_of(&down);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_STR(claim(&c, key_on(1, 0), 2).result, "r");
    run_done(&c, key_on(0, 2), 1, "r");
    conn_close(&c);
    farm_stop(&farm);
}

TEST_IN(a_cluster_that_stays_down_refuses_at_the_deadline, 120) {
    struct answer a;
    struct call call;
    struct conn c;

    farm_begin("&timeout=1s");
    conn_open(&c, url, HOST_POLL, NULL);
    for (size_t i = 0; i < 3; i++)
        run_done(&c, key_on(i, 0), 1, "r");
    server_stop(&farm.servers[0]);
    state_wait(1, "cluster_state:fail");
    once_fill(&call, &c, key_on(1, 1));
    (void)call_run(&call);
    CHECK_INT(call.rc, IDEM_E_REFUSED); /* it was told so: it did not happen */
    CHECK_HAS(call.op.error.text, "CLUSTERDOWN");
    a = claim(&c, key_on(0, 1), 1);
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    conn_close(&c);
    farm_stop(&farm);
}

TEST_MAIN
