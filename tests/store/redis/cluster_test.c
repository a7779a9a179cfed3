/*
 * A cluster that changes under load: slots that move while they are in use, a
 * server that dies and comes back. No caller gets an error.
 */
#include <limits.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "farm.h"
#include "loop_clock.h"
#include "protocol/record_key.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "temp.h"
#include "wait.h"

#define LOADERS 2
#define MOVES 12

/* One cluster for all tests that kill none of its servers. */
static struct farm farm;
static char url[600];

static void farm_begin(const char *options) {
    char reply[64];

    farm_flush(&farm);
    for (size_t i = 0; i < farm.servers_n; i++)
        server_ask(&farm.servers[i], reply, sizeof(reply), "CONFIG", "RESETSTAT", NULL);
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

/* Keys under this prefix are all in one slot. */
#define BUSY_PREFIX "{busy}:"

static unsigned busy_slot(void) {
    return redis_cluster_slot(BUSY_PREFIX "x", sizeof(BUSY_PREFIX));
}

/* Commands to the servers. */

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

/* Moves the existing keys of the slot, a few at a time, until `most` or a few more have moved.
 * Returns their number. */
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
                   "120000", "KEYS", k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8], k[9],
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
    WAIT_UNTIL(farm_agrees(&farm));
}

/* Calls `goes_on` between the steps; it waits for some load, if the test has any. */
static unsigned slot_move(unsigned slot, size_t from, void (*goes_on)(void)) {
    size_t to = (from + 1) % 3, third = (from + 2) % 3;
    unsigned n;

    move_begin(slot, from, to);
    goes_on(); /* in this state new keys are requested on the other side */
    n = keys_move(slot, from, to, UINT_MAX);
    goes_on();
    n += keys_move(slot, from, to, UINT_MAX);
    move_end(slot, from, to, third);
    return n;
}

/* The server that has the slot. Earlier tests may have moved it. */
static size_t slot_owner(unsigned slot) {
    char reply[4096], name[] = BUSY_PREFIX "x";

    for (size_t i = 0; i < farm.servers_n; i++) {
        server_ask(&farm.servers[i], reply, sizeof(reply), "EXISTS", name, NULL);
        if (reply[0] == ':')
            return i;
        CHECK(strncmp(reply, "-MOVED", 6) == 0 && strtoul(reply + 6, NULL, 10) == slot);
    }
    CHECK(false);
    return 0;
}

static unsigned long errors_of(size_t i, const char *word) {
    char reply[8192], mark[64];
    const char *at;

    snprintf(mark, sizeof(mark), "errorstat_%s:count=", word);
    server_ask(&farm.servers[i], reply, sizeof(reply), "INFO", "errorstats", NULL);
    at = strstr(reply, mark);
    return at == NULL ? 0 : strtoul(at + strlen(mark), NULL, 10);
}

static unsigned long errors_all(const char *word) {
    return errors_of(0, word) + errors_of(1, word) + errors_of(2, word);
}

/* Load. */

struct load {
    _Atomic bool stop;
    _Atomic unsigned long pairs, replays;
};
static struct load *load;

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

/* Runs a few calls at once, so that redirections meet pipelines. */
static void load_round(struct conn *c, unsigned who, unsigned round) {
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

static void loader(unsigned who) {
    struct conn c;

    conn_open(&c, url, who % 2 == 0 ? HOST_POLL : HOST_EDGE, NULL);
    for (unsigned round = 0; !load->stop; round++) {
        load_round(&c, who, round);
        wait_step(); /* sleep: until few enough keys are left in the slot to move them */
    }
    conn_close(&c);
}

/* True if `n` more pairs are done, and no loader has found a fault. */
static bool has_loaded(unsigned long pairs) {
    CHECK_INT(waitpid(-1, NULL, WNOHANG), 0);
    return load->pairs >= pairs;
}

static void load_wait(void) {
    unsigned long before = load->pairs;

    WAIT_UNTIL(has_loaded(before + 20));
}

TEST(slots_that_move_under_load_are_followed_and_nobody_sees_it) {
    pid_t pids[LOADERS];
    unsigned slot = busy_slot(), moved = 0;
    size_t at = slot_owner(slot);

    load = mmap(NULL, sizeof(*load), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(load != MAP_FAILED);
    farm_begin("&timeout=100s");
    fflush(NULL);
    for (unsigned i = 0; i < LOADERS; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            loader(i);
            exit(0);
        }
    }
    WAIT_UNTIL(has_loaded(50));
    for (unsigned i = 0; i < MOVES; i++) {
        moved += slot_move(slot, at, load_wait);
        at = (at + 1) % 3;
        load_wait();
    }
    load->stop = true;
    for (unsigned i = 0; i < LOADERS; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    fprintf(stderr, "# %lu pairs, %lu replays, %u records moved, %lu MOVED, %lu ASK\n", load->pairs,
            load->replays, moved, errors_all("MOVED"), errors_all("ASK"));
    CHECK(moved > MOVES);
    CHECK(errors_all("MOVED") > 0);
    CHECK(errors_all("ASK") > 0);
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

/* The list has every record exactly once: nothing moves meanwhile. */
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

TEST(a_list_and_stats_leave_nothing_out_while_a_slot_is_on_two_servers) {
    unsigned slot = busy_slot(), moved;
    size_t at = slot_owner(slot), to = (at + 1) % 3, third = (at + 2) % 3;
    struct conn c;

    farm_begin("&timeout=100s");
    conn_open(&c, url, HOST_POLL, NULL);
    for (unsigned i = 0; i < RECORDS; i++)
        busy_done(&c, text("k%u", i));
    busy_listed(&c);
    for (int turn = 0; turn < 2;
         turn++) { /* there and back, whichever server the list reads first */
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
}

struct waiter {
    struct idem_watch watch;
    unsigned wakes;
};

static void on_wake(struct idem_watch *watch) {
    ((struct waiter *)watch)->wakes++;
}

/* True if the watch is in force on the server that has the slot now. */
static bool is_heard(const struct waiter *waiter, size_t owner) {
    char name[200], hex[IDEM_HEX_LEN + 1], reply[300];

    idem_record_key_hex(&waiter->watch.key, hex);
    snprintf(name, sizeof(name), BUSY_PREFIX "%s", hex);
    server_ask(&farm.servers[owner], reply, sizeof(reply), "PUBSUB", "SHARDNUMSUB", name, NULL);
    return strstr(reply, "\r\n:1\r\n") != NULL;
}

static void nothing(void) {
}

TEST(a_waiter_is_woken_after_its_slot_has_moved) {
    struct waiter waiter = {.watch = {.key = key_in(BUSY_PREFIX, "k"), .wake = on_wake}};
    unsigned slot = busy_slot();
    size_t at = slot_owner(slot);
    struct conn waits, works;

    farm_begin("&timeout=100s");
    conn_open(&waits, url, HOST_POLL, NULL);
    conn_open(&works, url, HOST_POLL, NULL);
    CHECK_INT(waits.store->driver->watch(waits.store, &waiter.watch), 0);
    TURN_UNTIL(&waits, waiter.wakes > 0);
    waiter.wakes = 0;
    (void)slot_move(slot, at, nothing);
    TURN_UNTIL(&waits, waiter.wakes > 0); /* the watch is in force on that server */
    TURN_UNTIL(&waits, is_heard(&waiter, (at + 1) % 3));
    waiter.wakes = 0;
    busy_done(&works, "k");
    TURN_UNTIL(&waits, waiter.wakes > 0);
    waits.store->driver->unwatch(waits.store, &waiter.watch);
    conn_close(&waits);
    conn_close(&works);
}

/* A key in a slot of that server. */
static const char *key_on(size_t server, unsigned nth) {
    char name[100];

    for (unsigned i = 0;; i++) {
        const char *key = text("on%u", i);

        name_of(key, name, sizeof(name));
        if (redis_cluster_slot(name, strlen(name)) * (size_t)3 / REDIS_SLOTS == server &&
            nth-- == 0)
            return key;
    }
}

static bool is_down(size_t i) {
    char reply[4096];

    server_ask(&farm.servers[i], reply, sizeof(reply), "CLUSTER", "INFO", NULL);
    return strstr(reply, "cluster_state:fail") != NULL;
}

/* Server 0 dies, and the others notice it. Another process may have started it. */
static void first_kill(void) {
    farm_deaths_noticed(&farm);
    CHECK(kill(farm.servers[0].pid, SIGKILL) == 0);
    (void)waitpid(farm.servers[0].pid, NULL, 0);
    WAIT_UNTIL(is_down(1) && is_down(2));
}

TEST(a_cluster_that_is_down_is_waited_for_and_a_server_that_is_gone_refuses_at_once) {
    struct call lost, down;
    struct answer a;
    struct conn c;

    farm_start(&farm, FARM_CLUSTER, temp_folder(),
               -1); /* a cluster of its own, because the test kills it */
    farm_begin("&timeout=100s");
    conn_open(&c, url, HOST_EDGE, NULL);
    for (size_t i = 0; i < 3; i++)
        run_done(&c, key_on(i, 0), 1, "r");
    first_kill();
    claim_fill(&lost, &c, key_on(0, 1), 1);
    CHECK_INT(call_submit(&lost), 0);
    claim_fill(&down, &c, key_on(1, 1), 1);
    CHECK_INT(call_submit(&down), 0);
    CHECK_INT(answer_wait(&lost).rc, IDEM_E_REFUSED);
    TURN_UNTIL(&c, errors_of(1, "CLUSTERDOWN") >= 2); /* the store has asked for the map again */
    CHECK_INT(down.completed, 0);
    farm_restart(&farm, 0);
    a = answer_wait(&down);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    WAIT_UNTIL((a = claim(&c, key_on(0, 1), 1)).rc != IDEM_E_REFUSED);
    CHECK_INT(a.rc, 0);
    CHECK_INT(a.verdict, IDEM_RUN);
    CHECK_STR(claim(&c, key_on(1, 0), 2).result, "r");
    run_done(&c, key_on(0, 2), 1, "r");
    conn_close(&c);
    farm_stop(&farm);
}

static bool is_reply_due(struct conn *c) {
    const struct redis_store *store = idem_container_of(c->store, struct redis_store, remote.base);

    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (node->conn.state == REDIS_CONN_READY && node->conn.pending_n > 0)
            return true;
    return false;
}

/* Time passes only while no reply is due: an operation that waits for a reply at its deadline is
 * unknown. */
static struct answer answer_in_steps(struct call *call) {
    CHECK_INT(call_submit(call), 0);
    while (call->completed == 0) {
        conn_turn(call->conn, 1);
        if (!is_reply_due(call->conn))
            loop_clock_forward(10);
    }
    return answer_of(call);
}

/* The last server: the cluster stays down. */
TEST(a_cluster_that_stays_down_refuses_at_the_deadline) {
    struct answer a;
    struct call call;
    struct conn c;

    loop_clock_stop();
    farm_begin("&timeout=1s");
    conn_open(&c, url, HOST_POLL, NULL);
    for (size_t i = 0; i < 3; i++)
        run_done(&c, key_on(i, 0), 1, "r");
    first_kill();
    once_fill(&call, &c, key_on(1, 1));
    a = answer_in_steps(&call);
    CHECK_INT(a.rc, IDEM_E_REFUSED); /* the server refused it: the operation did not happen */
    CHECK(a.text[0] != '\0'); /* the reason of the server, or of the one that sent the slots */
    claim_fill(&call, &c, key_on(0, 1), 1);
    CHECK_INT(answer_in_steps(&call).rc, IDEM_E_REFUSED);
    conn_close(&c);
}

int main(int argc, char **argv) {
    int failed;

    farm_start(&farm, FARM_CLUSTER, temp_folder(), -1);
    failed = test_main(argc, argv);
    farm_stop(&farm);
    return failed;
}
