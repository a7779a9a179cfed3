/*
 * Watches: how many the store makes, on which connections, and their fate when
 * a slot moves.
 */
#include "fake_server.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "wait.h"

#define WAITERS 100

struct waiter {
    struct idem_watch watch;
    unsigned wakes;
};

static void on_wake(struct idem_watch *watch) {
    ((struct waiter *)watch)->wakes++;
}

static void waiter_start(struct waiter *waiter, struct conn *c, const char *key) {
    *waiter = (struct waiter){.watch = {.key = key_in("t:", key), .wake = on_wake}};
    CHECK_INT(c->store->driver->watch(c->store, &waiter->watch), 0);
}

static void waiter_stop(struct waiter *waiter, struct conn *c) {
    c->store->driver->unwatch(c->store, &waiter->watch);
}

static void woken_wait(struct waiter *waiter, struct conn *c, unsigned wakes) {
    TURN_UNTIL(c, waiter->wakes >= wakes);
    CHECK_INT(waiter->wakes, wakes);
}

/* The number of each kind of subscription that the fakes got. */
static _Atomic unsigned wished[FAKES_MAX], sharded[FAKES_MAX], plain[FAKES_MAX], ended;
static _Atomic int wisher; /* the connection of the last */
static _Atomic size_t owner;
static _Atomic unsigned maps;
static _Atomic bool down;

static void map_say(char *out, size_t size, size_t low, size_t high) {
    snprintf(out, size,
             "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
             "*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
             fakes.port[low], fakes.port[high]);
}

static void name_say(char *out, size_t size, const char *word, const char *name) {
    snprintf(out, size, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n", strlen(word), word,
             strlen(name), name);
}

/* Subscriptions at a server that accepts any slot. */
static bool subscribes(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "SSUBSCRIBE", NULL)) {
        sharded[command->fake]++;
        wished[command->fake]++;
        name_say(out, size, "ssubscribe", command->word[1]);
    } else if (fake_is(command, "SUBSCRIBE", NULL)) {
        plain[command->fake]++;
        wished[command->fake]++;
        name_say(out, size, "subscribe", command->word[1]);
    } else if (fake_is(command, "SUNSUBSCRIBE", NULL)) {
        ended++;
        name_say(out, size, "sunsubscribe", command->word[1]);
    } else if (fake_is(command, "UNSUBSCRIBE", NULL)) {
        ended++;
        name_say(out, size, "unsubscribe", command->word[1]);
    } else {
        return false;
    }
    wisher = command->client;
    return true;
}

static _Atomic unsigned late; /* the confirmation that waits until this changes; 0: none */

static bool say_alone(const struct fake_command *command, char *out, size_t size) {
    bool known = subscribes(command, out, size);

    if (fake_is(command, "SUBSCRIBE", NULL))
        WAIT_UNTIL(late == 0 || plain[0] != late);
    return known;
}

static void open_alone(struct conn *c) {
    char url[200];

    fakes_start(1, say_alone);
    memset((void *)plain, 0, sizeof(plain));
    ended = 0;
    late = 0;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fakes.port[0]);
    conn_open(c, url, HOST_POLL, NULL);
}

static struct waiter waiters[WAITERS];

TEST(waiters_of_one_key_that_come_one_by_one_do_not_wake_each_other) {
    unsigned wakes = 0;
    struct conn c;

    open_alone(&c);
    for (unsigned i = 0; i < WAITERS; i++) {
        waiter_start(&waiters[i], &c, "k");
        woken_wait(&waiters[i], &c, 1); /* the watch is in force */
    }
    conn_pass(&c, 500);
    for (unsigned i = 0; i < WAITERS; i++)
        wakes += waiters[i].wakes;
    CHECK_INT(wakes, WAITERS);
    CHECK_INT(plain[0], 1);
    for (unsigned i = 0; i < WAITERS; i++)
        waiter_stop(&waiters[i], &c);
    TURN_UNTIL(&c, ended > 0);
    conn_pass(&c, 500);
    CHECK_INT(ended, 1);
    conn_close(&c);
    fakes_stop();
}

TEST(all_waiters_of_a_key_are_woken_by_one_finish) {
    char message[300], name[100];
    struct conn c;

    open_alone(&c);
    for (unsigned i = 0; i < 5; i++) {
        waiter_start(&waiters[i], &c, "k");
        woken_wait(&waiters[i], &c, 1);
    }
    name_of("k", name, sizeof(name));
    snprintf(message, sizeof(message), "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$0\r\n\r\n",
             strlen(name), name);
    fake_push(wisher, message);
    for (unsigned i = 0; i < 5; i++)
        woken_wait(&waiters[i], &c, 2);
    for (unsigned i = 0; i < 5; i++)
        waiter_stop(&waiters[i], &c);
    conn_close(&c);
    fakes_stop();
}

/* A confirmation may belong to the watch that has just ended on the same key: the second
 * confirmation counts. */
TEST(a_waiter_that_comes_when_another_has_just_gone_is_woken_when_its_own_wish_is_in_force) {
    struct waiter other, first, second;
    struct conn c;

    open_alone(&c);
    late = 3;
    waiter_start(&other, &c, "other");
    woken_wait(&other, &c, 1); /* the store is connected */
    waiter_start(&first, &c, "k");
    waiter_stop(&first, &c);
    waiter_start(&second, &c, "k");
    woken_wait(&second, &c, 1);
    late = 0;
    woken_wait(&second, &c, 2);
    waiter_stop(&other, &c);
    waiter_stop(&second, &c);
    conn_close(&c);
    fakes_stop();
}

/* In a cluster. */

static bool say_owner(const struct fake_command *command, char *out, size_t size) {
    size_t has = owner;

    if (fake_is(command, "CLUSTER", "SLOTS")) {
        maps++;
        map_say(out, size, has, has);
        return true;
    }
    if (down && fake_is(command, "SSUBSCRIBE", NULL)) {
        snprintf(out, size, "-CLUSTERDOWN The cluster is down\r\n");
        wished[command->fake]++;
        return true;
    }
    if (command->fake != has && fake_is(command, "SSUBSCRIBE", NULL)) {
        snprintf(out, size, "-MOVED %u 127.0.0.1:%d\r\n",
                 redis_cluster_slot(command->word[1], strlen(command->word[1])), fakes.port[has]);
        wished[command->fake]++;
        return true;
    }
    return subscribes(command, out, size);
}

static void open_cluster(struct conn *c, bool (*say)(const struct fake_command *, char *, size_t)) {
    char url[200];

    memset((void *)wished, 0, sizeof(wished));
    memset((void *)plain, 0, sizeof(plain));
    memset((void *)sharded, 0, sizeof(sharded));
    owner = 0;
    maps = 0;
    down = false;
    fakes_start(2, say);
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d", fakes.port[0]);
    conn_open(c, url, HOST_POLL, NULL);
}

TEST(a_wish_that_is_answered_by_moved_is_made_where_the_slot_is) {
    struct waiter first, second;
    struct conn c;

    open_cluster(&c, say_owner);
    waiter_start(&first, &c, "a");
    woken_wait(&first, &c, 1);
    owner = 1;
    waiter_start(&second, &c, "b");
    woken_wait(&second, &c, 1);
    CHECK_INT(wished[0], 2); /* the second of them in vain */
    CHECK(sharded[1] >= 1);
    waiter_stop(&first, &c);
    waiter_stop(&second, &c);
    conn_close(&c);
    fakes_stop();
}

TEST(a_wish_whose_slot_has_gone_away_is_made_again_where_it_is) {
    char bytes[300], name[100];
    struct waiter waiter;
    struct conn c;

    open_cluster(&c, say_owner);
    waiter_start(&waiter, &c, "k");
    woken_wait(&waiter, &c, 1);
    owner = 1;
    name_of("k", name, sizeof(name));
    name_say(bytes, sizeof(bytes), "sunsubscribe", name);
    fake_push(wisher, bytes);
    woken_wait(&waiter, &c, 2);
    CHECK_INT(sharded[1], 1);
    conn_pass(&c, 500);
    CHECK_INT(sharded[1], 1);
    CHECK_INT(waiter.wakes, 2);
    waiter_stop(&waiter, &c);
    conn_close(&c);
    fakes_stop();
}

TEST(wishes_are_made_again_once_a_cluster_is_up_and_not_without_a_pause) {
    struct waiter waiter;
    unsigned before;
    struct conn c;

    open_cluster(&c, say_owner);
    waiter_start(&waiter, &c, "other");
    woken_wait(&waiter, &c, 1);
    waiter_stop(&waiter, &c);
    down = true;
    before = wished[0];
    waiter_start(&waiter, &c, "k");
    loop_clock_stop(); /* if turns take long, no more time passes */
    conn_pass(&c, 500);
    CHECK_INT(waiter.wakes, 0);
    CHECK(wished[0] < 20);
    loop_clock_go_on();
    TURN_UNTIL(&c, wished[0] >= before + 2);
    CHECK_INT(waiter.wakes, 0);
    down = false;
    woken_wait(&waiter, &c, 1);
    waiter_stop(&waiter, &c);
    conn_close(&c);
    fakes_stop();
}

/* A new map does not renew the watches. */
static bool say_moved_once(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "EVALSHA", NULL) && maps == 1) {
        snprintf(out, size, "-MOVED 1 127.0.0.1:%d\r\n", fakes.port[0]);
        return true;
    }
    if (fake_is(command, "EVALSHA", NULL)) {
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
        return true;
    }
    return say_owner(command, out, size);
}

TEST(a_wish_that_is_in_force_is_left_alone_by_a_new_map) {
    struct waiter waiter;
    struct conn c;

    open_cluster(&c, say_moved_once);
    waiter_start(&waiter, &c, "k");
    woken_wait(&waiter, &c, 1);
    (void)lookup(&c, "k");
    conn_pass(&c, 500);
    CHECK(maps >= 2);
    CHECK_INT(sharded[0], 1);
    CHECK_INT(waiter.wakes, 1);
    waiter_stop(&waiter, &c);
    conn_close(&c);
    fakes_stop();
}

static bool say_halves(const struct fake_command *command, char *out, size_t size) {
    if (!fake_is(command, "CLUSTER", "SLOTS"))
        return subscribes(command, out, size);
    map_say(out, size, 0, 1);
    return true;
}

static const char *key_in_half(unsigned half) {
    static char keys[2][32];
    char name[100];

    for (unsigned i = 0;; i++) {
        snprintf(keys[half], sizeof(keys[half]), "k%u", i);
        name_of(keys[half], name, sizeof(name));
        if (redis_cluster_slot(name, strlen(name)) * 2u / REDIS_SLOTS == half)
            return keys[half];
    }
}

/* In whichever order the two come. */
static void mixed(const char *version0, const char *version1) {
    bool old0 = version0[0] == '6', old1 = version1[0] == '6';
    struct waiter low, high;
    struct conn c;

    open_cluster(&c, say_halves);
    fakes.versions[0] = version0;
    fakes.versions[1] = version1;
    waiter_start(&low, &c, key_in_half(0));
    waiter_start(&high, &c, key_in_half(1));
    woken_wait(&low, &c, 1);
    woken_wait(&high, &c, 1);
    CHECK_INT(plain[0], old0);
    CHECK_INT(sharded[0], !old0);
    CHECK_INT(plain[1], old1);
    CHECK_INT(sharded[1], !old1);
    waiter_stop(&low, &c);
    waiter_stop(&high, &c);
    conn_close(&c);
    fakes_stop();
}

TEST(a_wish_is_made_as_the_server_that_has_its_slot_understands_it) {
    mixed("6.2.7", "7.0.15");
    mixed("7.0.15", "6.2.7");
}

TEST_MAIN
