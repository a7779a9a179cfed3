/*
 * Routing: servers that disagree, that reply with errors only, or that have no
 * room. The store asks them again, but not without a pause, and does not trust
 * a map blindly.
 */
#include "fake_server.h"
#include "loop_clock.h"
#include "store/driver_call.h"
#include "store/proxy.h"
#include "store/redis/redis_store.h"
#include "temp.h"
#include "wait.h"

static char url[600];

static void cluster_url(const char *options) {
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?%s", fakes.port[0],
             fakes.port[1], options);
}

static void sentinel_url(const char *options) {
    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop?%s", fakes.port[0],
             fakes.port[1], options);
}

static unsigned met_all(void) {
    return fakes.met[0] + fakes.met[1] + fakes.met[2];
}

static unsigned asked_all(void) {
    return fakes.asked[0] + fakes.asked[1] + fakes.asked[2];
}

/* Without pauses the store would send thousands of commands in a second. With pauses, which
 * start at 50 ms and grow, about five for each server. */
#define FEW 60
static unsigned few; /* the same for the time that it took */

/* Claims without a break for a second, and longer until the fakes have `least` connections and
 * `least_asked` commands. */
static void second_of(struct conn *c, unsigned least, unsigned least_asked) {
    int64_t begun = idem_loop_now(), end = begun + 1000;
    struct call call;

    conn_open(c, url, HOST_POLL, NULL);
    while (idem_loop_now() < end || met_all() < least || asked_all() < least_asked) {
        claim_fill(&call, c, "k", 1);
        (void)call_run(&call);
        CHECK(call.rc != 0);
        conn_turn(c, 5);
    }
    few = FEW * (unsigned)(1 + (idem_loop_now() - begun) / 1000);
    fprintf(stderr, "# %u connections, %u commands\n", met_all(), asked_all());
}

static bool say_error(const struct fake_command *command, char *out, size_t size) {
    (void)command;
    snprintf(out, size, "-ERR not today\r\n");
    return true;
}

TEST(servers_of_a_cluster_that_answer_errors_at_once_are_asked_with_pauses) {
    struct conn c;

    fakes_start(2, say_error);
    cluster_url("timeout=200ms");
    second_of(&c, 2, 2);
    CHECK(asked_all() > 1 && asked_all() < few);
    CHECK(met_all() < few);
    conn_close(&c);
    fakes_stop();
}

static bool say_end(const struct fake_command *command, char *out, size_t size) {
    (void)command;
    (void)out;
    (void)size;
    return false;
}

TEST(servers_of_a_cluster_that_hang_up_are_asked_with_pauses) {
    struct conn c;

    fakes_start(2, say_end);
    cluster_url("timeout=200ms");
    second_of(&c, 2, 0);
    CHECK(met_all() > 1 && met_all() < few);
    conn_close(&c);
    fakes_stop();
}

TEST(sentinels_that_answer_errors_at_once_are_asked_with_pauses) {
    struct conn c;

    fakes_start(2, say_error);
    sentinel_url("timeout=200ms");
    second_of(&c, 2, 2);
    CHECK(asked_all() > 1 && asked_all() < few);
    CHECK(met_all() < few);
    conn_close(&c);
    fakes_stop();
}

static bool say_nil(const struct fake_command *command, char *out, size_t size) {
    (void)command;
    snprintf(out, size, "*-1\r\n");
    return true;
}

TEST(sentinels_that_know_no_master_are_asked_with_pauses) {
    struct conn c;

    fakes_start(2, say_nil);
    sentinel_url("timeout=200ms");
    second_of(&c, 2, 0);
    CHECK(met_all() > 1 && met_all() < few);
    conn_close(&c);
    fakes_stop();
}

/* 0 and 1 are sentinels, 2 is the master, which closes the connection at the first command. */
static bool say_master(const struct fake_command *command, char *out, size_t size) {
    char port[16];

    if (command->fake == 2)
        return false;
    snprintf(port, sizeof(port), "%d", fakes.port[2]);
    snprintf(out, size, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    return true;
}

TEST(a_master_that_the_sentinels_name_and_that_hangs_up_is_asked_for_with_pauses) {
    struct conn c;

    fakes_start(3, say_master);
    sentinel_url("timeout=200ms");
    second_of(&c, 4, 0);
    CHECK(met_all() > 3 && met_all() < few);
    conn_close(&c);
    fakes_stop();
}

/* [first, last, [host, port]] */
static size_t range_say(char *out, size_t size, unsigned first, unsigned last, const char *host,
                        int port) {
    return (size_t)snprintf(out, size, "*3\r\n:%u\r\n:%u\r\n*2\r\n$%zu\r\n%s\r\n:%d\r\n", first,
                            last, strlen(host), host, port);
}

static void map_one(char *out, size_t size, size_t fake) {
    size_t n = (size_t)snprintf(out, size, "*1\r\n");

    (void)range_say(out + n, size - n, 0, REDIS_SLOTS - 1, "127.0.0.1", fakes.port[fake]);
}

static _Atomic bool cluster_is_down;

static bool say_down(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "CLUSTER", "SLOTS"))
        map_one(out, size, 0);
    else if (cluster_is_down)
        snprintf(out, size, "-CLUSTERDOWN The cluster is down\r\n");
    else
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
    return true;
}

/* Operations that wait when the cluster fails pay the timeout. Afterwards no time passes: each
 * sends one command. */
TEST(a_cluster_that_is_down_costs_the_timeout_once) {
    struct answer a;
    struct call call;
    struct conn c;

    fakes_start(2, say_down);
    cluster_is_down = true;
    cluster_url("timeout=1s");
    loop_clock_stop();
    conn_open(&c, url, HOST_EDGE, NULL);
    kind_fill(&call, &c, IDEM_OP_LOOKUP, "k");
    CHECK_INT(call_submit(&call), 0);
    fakes_pass(&c, 900);
    CHECK_INT(call.completed, 0);
    fakes_pass(&c, 200);
    CHECK_INT(answer_wait(&call).rc, IDEM_E_REFUSED);
    for (unsigned i = 0; i < 3; i++) {
        a = lookup(&c, "k");
        CHECK_INT(a.rc, IDEM_E_REFUSED);
        CHECK_HAS(a.text, "The cluster is down");
    }
    cluster_is_down = false;
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    cluster_is_down =
        true; /* for a moment only, like a failover of the cluster: the store waits for its end */
    kind_fill(&call, &c, IDEM_OP_LOOKUP, "k");
    CHECK_INT(call_submit(&call), 0);
    fakes_pass(&c, 500);
    CHECK_INT(call.completed, 0);
    cluster_is_down = false;
    fakes_pass(&c, 100);
    CHECK_INT(answer_wait(&call).rc, IDEM_E_ABSENT);
    conn_close(&c);
    fakes_stop();
}

/* Each server claims that the other has the slot. */
static bool say_other(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "CLUSTER", "SLOTS"))
        map_one(out, size, 0);
    else
        snprintf(out, size, "-MOVED 7 127.0.0.1:%d\r\n", fakes.port[1 - command->fake]);
    return true;
}

TEST(servers_that_send_each_other_an_operation_are_given_time) {
    struct call call;
    struct conn c;

    fakes_start(2, say_other);
    loop_clock_stop();
    cluster_url("timeout=1s");
    conn_open(&c, url, HOST_POLL, NULL);
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    /* Time passes only while all commands are answered: an operation that is under way at the
     * deadline is unknown. */
    while (call.completed == 0) {
        conn_turn(&c, 0);
        WAIT_UNTIL(fakes_are_idle());
        conn_turn(&c, 0);
        loop_clock_forward(1);
    }
    CHECK_INT(call.rc, IDEM_E_REFUSED);
    fprintf(stderr, "# %u commands\n", asked_all());
    CHECK(asked_all() > 3 && asked_all() < 100);
    conn_close(&c);
    fakes_stop();
}

static char path[108];

/* The lower half is at "port 0", the upper half here. */
static bool say_socket(const struct fake_command *command, char *out, size_t size) {
    size_t n;

    if (fake_is(command, "CLUSTER", "SLOTS")) {
        n = (size_t)snprintf(out, size, "*2\r\n");
        n += range_say(out + n, size - n, 0, REDIS_SLOTS / 2 - 1, path, 0);
        (void)range_say(out + n, size - n, REDIS_SLOTS / 2, REDIS_SLOTS - 1, "127.0.0.1",
                        fakes.port[0]);
    } else {
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
    }
    return true;
}

/* A key in that half. */
static const char *key_in_half(unsigned half) {
    static char key[32];
    char name[100];

    for (unsigned i = 0;; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        name_of(key, name, sizeof(name));
        if (redis_cluster_slot(name, strlen(name)) * 2u / REDIS_SLOTS == half)
            return key;
    }
}

TEST(a_map_with_port_0_does_not_lead_to_a_socket_of_this_machine) {
    static struct proxy proxy;
    struct call call;
    struct conn c;

    proxy_start(&proxy, temp_folder(), "proxy", NULL);
    snprintf(path, sizeof(path), "%s", proxy.path);
    fakes_start(2, say_socket);
    cluster_url("timeout=100s");
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_INT(lookup(&c, key_in_half(1)).rc, IDEM_E_ABSENT);
    kind_fill(&call, &c, IDEM_OP_LOOKUP, key_in_half(0));
    CHECK_INT(call_submit(&call), 0);
    conn_pass(&c, 1000);
    loop_clock_forward(100000);
    CHECK_INT(answer_wait(&call).rc, IDEM_E_REFUSED); /* no server has the slot */
    /* A request for the map was under way when the clock moved, so its server counts as down. */
    WAIT_UNTIL(lookup(&c, key_in_half(1)).rc == IDEM_E_ABSENT);
    CHECK_INT(proxy.met, 0);
    conn_close(&c);
    fakes_stop();
    proxy_stop(&proxy);
}

static bool say_absent(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "AUTH", NULL))
        snprintf(out, size, "+OK\r\n");
    else
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
    return true;
}

static void no_room(const char *user) {
    struct answer a;
    struct conn c;

    fakes_start(1, say_absent);
    fakes.at_once = "-ERR max number of clients reached\r\n";
    snprintf(url, sizeof(url), "redis://%s127.0.0.1:%d?timeout=100s", user, fakes.port[0]);
    conn_open(&c, url, HOST_POLL, NULL);
    a = lookup(&c, "k");
    CHECK_INT(a.rc, IDEM_E_REFUSED);
    CHECK_HAS(a.text, "maxclients");
    conn_pass(&c, 500);
    CHECK(fakes.met[0] < FEW);
    TURN_UNTIL(&c, fakes.met[0] > 1);
    fakes.at_once = NULL;
    TURN_UNTIL(&c, (a = lookup(&c, "k")).rc != IDEM_E_REFUSED);
    CHECK_INT(a.rc, IDEM_E_ABSENT);
    conn_close(&c);
    fakes_stop();
}

TEST(a_server_that_has_no_room_for_another_client_says_so_and_is_tried_again) {
    no_room("");
    no_room("user:secret@");
}

/* Replies like a 6.2 that was demoted on the first connection; after that it is the master
 * again. */
static bool say_demoted(const struct fake_command *command, char *out, size_t size) {
    (void)command;
    if (fakes.met[0] == 1)
        snprintf(out, size,
                 "-ERR Error running script (call to f_0123): @user_script:4: @user_script: 4: "
                 "-READONLY You can't write against a read only replica.  \r\n");
    else
        snprintf(out, size, ":0\r\n");
    return true;
}

TEST(a_master_that_is_none_any_more_is_left_though_only_a_script_tells_so) {
    struct conn c;

    fakes_start(1, say_demoted);
    fakes.versions[0] = "6.2.14";
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fakes.port[0]);
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_INT(forget(&c, "k", false).rc, 0);
    CHECK_INT(fakes.met[0], 2);
    conn_close(&c);
    fakes_stop();
}

static bool say_moved(const struct fake_command *command, char *out, size_t size) {
    (void)command;
    snprintf(out, size, "-MOVED 7 127.0.0.1:6379\r\n");
    return true;
}

TEST(a_url_of_one_server_that_is_of_a_cluster_is_told_what_to_say) {
    struct conn c;

    fakes_start(1, say_moved);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fakes.port[0]);
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_HAS(claim(&c, "k", 1).text, "use redis+cluster:");
    conn_close(&c);
    fakes_stop();
}

/* Servers that do not know by which name they are reached: 0 has all slots by the map, 1 in
 * fact. */
static bool say_unnamed(const struct fake_command *command, char *out, size_t size) {
    char name[100];
    size_t n;

    if (fake_is(command, "CLUSTER", "SLOTS")) {
        n = (size_t)snprintf(out, size, "*1\r\n");
        (void)range_say(out + n, size - n, 0, REDIS_SLOTS - 1, "", fakes.port[0]);
        return true;
    }
    if (command->fake == 1)
        return say_absent(command, out, size);
    name_of("k", name, sizeof(name));
    snprintf(out, size, "-MOVED %u :%d\r\n", redis_cluster_slot(name, strlen(name)), fakes.port[1]);
    return true;
}

TEST(a_server_of_a_cluster_that_is_not_named_is_at_the_host_that_was_asked) {
    struct conn c;

    fakes_start(2, say_unnamed);
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d?timeout=100s", fakes.port[0]);
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    conn_close(&c);
    fakes_stop();
}

/* 0 and 1 are sentinels, 2 is the master: which of them got which password, and the SELECT. */
static _Atomic bool told_master[2], told_sentinel[2], selected[2];

static bool say_secrets(const struct fake_command *command, char *out, size_t size) {
    bool master = command->fake == 2;

    if (fake_is(command, "AUTH", NULL)) {
        told_master[master] |= strcmp(command->word[1], "for-the-master") == 0;
        told_sentinel[master] |= strcmp(command->word[1], "for-the-sentinel") == 0;
    } else if (fake_is(command, "SELECT", NULL)) {
        selected[master] = true;
    } else {
        return master ? say_absent(command, out, size) : say_master(command, out, size);
    }
    snprintf(out, size, "+OK\r\n");
    return true;
}

TEST(sentinels_are_told_their_own_password_and_never_the_masters) {
    char file[300];
    struct conn c;
    FILE *out;

    fakes_start(3, say_secrets);
    snprintf(url, sizeof(url), "redis+sentinel://:for-the-master@127.0.0.1:%d,127.0.0.1:%d/shop/3",
             fakes.port[0], fakes.port[1]);
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    conn_close(&c);
    CHECK(told_master[1] && !told_master[0] && !told_sentinel[0]);
    CHECK(selected[1] && !selected[0]);
    snprintf(file, sizeof(file), "%s/password", temp_folder());
    out = fopen(file, "w");
    CHECK(out != NULL && fputs("for-the-sentinel\n", out) >= 0 && fclose(out) == 0);
    snprintf(url + strlen(url), sizeof(url) - strlen(url), "?sentinel_password_file=%s", file);
    conn_open(&c, url, HOST_POLL, NULL);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    conn_close(&c);
    CHECK(told_sentinel[0] && !told_master[0] && !told_sentinel[1]);
    fakes_stop();
}

TEST_MAIN
