/*
 * A store of Sentinel and sentinels that misbehave: they disappear, refuse
 * their events, hang, or give a failover up. Until they can be relied on, no
 * claim is granted.
 */
#include "contract/conn.h"
#include "farm.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "temp.h"
#include "wait.h"

#define SENTINELS 3
/* The grace is the only timeout that matters here. */
#define OPTIONS "&timeout=100s&connect_timeout=100s&sentinel_grace=1s"

static struct farm farm;
static char notices[2000];

static void notice_take(void *data, const char *text) {
    (void)data;
    snprintf(notices + strlen(notices), sizeof(notices) - strlen(notices), "%s\n", text);
}

static void begin(struct conn *c) {
    char url[600];

    farm_start(&farm, FARM_SENTINEL, temp_folder(), -1);
    farm_url(&farm, OPTIONS, url, sizeof(url));
    conn_open(c, url, HOST_EDGE, NULL);
    c->store->notice = notice_take;
    run_done(c, "a", 1, "r");
}

static void end(struct conn *c) {
    conn_close(c);
    farm_stop(&farm);
}

static struct server *sentinel_at(size_t i) {
    return &farm.servers[farm.servers_n + i];
}

static void tell(const struct server *server, const char *first, const char *second,
                 const char *third, const char *fourth) {
    char reply[300];

    server_ask(server, reply, sizeof(reply), first, second, third, fourth, NULL);
    if (strncmp(reply, "+OK", 3) != 0)
        fprintf(stderr, "# %s: %s\n", first, reply);
    CHECK(strncmp(reply, "+OK", 3) == 0);
}

static unsigned owner = 100;

/* A claim of a new key is refused for this reason; a claim under way ends at once. A claim that
 * was sent before the failover began is unknown, for the same reason: the old master may have
 * stored it. */
static bool is_refused(struct conn *c, const char *why) {
    char key[32];
    struct answer a;

    snprintf(key, sizeof(key), "k%u", ++owner);
    a = claim(c, key, owner);
    CHECK(a.rc == IDEM_E_REFUSED || a.rc == IDEM_E_UNKNOWN || (a.rc == 0 && a.verdict == IDEM_RUN));
    return a.rc != 0 && strstr(a.text, why) != NULL;
}

static bool is_granted(struct conn *c) {
    char key[32];

    snprintf(key, sizeof(key), "k%u", ++owner);
    return claim(c, key, owner).verdict == IDEM_RUN;
}

/* The master is healthy all the time, but a failover would go unseen. */
TEST(without_a_sentinel_nothing_new_is_granted_and_what_is_done_is_replayed) {
    struct conn c;

    begin(&c);
    for (size_t i = 0; i < SENTINELS; i++)
        server_pause(sentinel_at(i));
    WAIT_UNTIL(is_refused(&c, "no sentinel has answered"));
    CHECK_INT(lookup(&c, "a").rc, 0);
    server_go_on(sentinel_at(2));
    WAIT_UNTIL(is_granted(&c));
    for (size_t i = 0; i < 2; i++)
        server_go_on(sentinel_at(i));
    end(&c);
}

/* Replies as to a user of an ACL without channels. */
static void channels_set(const char *which) {
    char reply[64];

    for (size_t i = 0; i < SENTINELS; i++) {
        tell(sentinel_at(i), "ACL", "SETUSER", "default", which);
        server_ask(sentinel_at(i), reply, sizeof(reply), "CLIENT", "KILL", "TYPE", "pubsub", NULL);
    }
}

TEST(sentinels_that_refuse_their_events_count_as_silent_and_the_reason_is_given) {
    struct conn c;

    begin(&c);
    channels_set("resetchannels");
    WAIT_UNTIL(is_refused(&c, "sent its events"));
    CHECK_HAS(notices, "the sentinel refuses SUBSCRIBE (NOPERM");
    channels_set("allchannels");
    WAIT_UNTIL(is_granted(&c));
    end(&c);
}

/* The number of the subscribed connection; 0: there is none. */
static long subscriber_of(size_t i) {
    char reply[8192], *rest = reply, *line;

    server_ask(sentinel_at(i), reply, sizeof(reply), "CLIENT", "LIST", NULL);
    while ((line = strsep(&rest, "\n")) != NULL)
        if (strstr(line, " sub=0 ") == NULL && strstr(line, " sub=") != NULL)
            return strtol(strstr(line, "id=") + 3, NULL, 10);
    return 0;
}

static bool is_subscribed_anew(struct conn *c, size_t i, long before) {
    long now = subscriber_of(i);

    conn_turn(c, 1);
    return now != 0 && now != before;
}

/* The connection waits for no reply: only PING shows that no event will come. */
TEST(a_connection_for_events_that_gives_no_sign_of_life_is_made_anew) {
    struct conn c;
    long before;

    begin(&c);
    WAIT_UNTIL((conn_turn(&c, 1), (before = subscriber_of(0)) != 0));
    server_pause(sentinel_at(0));
    loop_clock_forward(1000); /* a round with PING */
    for (int i = 0; i < 20; i++)
        conn_turn(&c, 1);
    loop_clock_forward(2000); /* longer than the grace, but shorter than any other timeout */
    for (int i = 0; i < 20; i++)
        conn_turn(&c, 1);
    server_go_on(sentinel_at(0));
    WAIT_UNTIL(is_subscribed_anew(&c, 0, before));
    WAIT_UNTIL(is_granted(&c));
    end(&c);
}

/* The replica hangs, so that the failover is aborted after its timeout. The sentinel announces
 * that. */
TEST(a_failover_that_is_given_up_costs_no_request_its_timeout_and_claims_go_on) {
    struct conn c;

    begin(&c);
    server_pause(&farm.servers[1]);
    tell(sentinel_at(1), "SENTINEL", "FAILOVER", "shop", NULL);
    WAIT_UNTIL(is_refused(&c, "a failover of Sentinel is under way"));
    CHECK_INT(lookup(&c, "a").rc, 0);
    WAIT_UNTIL(is_granted(&c));
    server_go_on(&farm.servers[1]);
    end(&c);
}

static bool is_ready(struct conn *c) {
    struct redis_store *store = idem_container_of(c->store, struct redis_store, remote.base);

    conn_turn(c, 1);
    return store->nodes->conn.state == REDIS_CONN_READY;
}

/* No write goes to the master meanwhile, which would fail and so show the change. */
TEST(a_master_that_becomes_a_replica_is_left) {
    struct conn c;
    char port[16];

    begin(&c);
    CHECK(is_ready(&c));
    snprintf(port, sizeof(port), "%d", farm.servers[1].port);
    tell(&farm.servers[0], "REPLICAOF", "127.0.0.1", port, NULL);
    WAIT_UNTIL(!is_ready(&c));
    tell(&farm.servers[0], "REPLICAOF", "NO", "ONE", NULL);
    WAIT_UNTIL(is_granted(&c));
    end(&c);
}

/* The rights that an earlier release asked for. */
TEST(a_user_without_the_right_to_role_gets_a_notice_and_claims_go_on) {
    struct conn c;

    begin(&c);
    tell(&farm.servers[0], "ACL", "SETUSER", "default", "-role");
    WAIT_UNTIL((conn_turn(&c, 1), strstr(notices, "ROLE is not allowed here") != NULL));
    CHECK_HAS(notices, "+role");
    CHECK(is_granted(&c));
    end(&c);
}

/* The number of seconds in which the store sent nothing to the sentinel. */
static long idle_at(size_t i) {
    char reply[8192], *rest = reply, *line;

    server_ask(sentinel_at(i), reply, sizeof(reply), "CLIENT", "LIST", NULL);
    while ((line = strsep(&rest, "\n")) != NULL)
        if (strstr(line, " name=x ") != NULL && strstr(line, " sub=0 ") != NULL)
            return strtol(strstr(line, " idle=") + 6, NULL, 10);
    return -1;
}

/* The clock stands still: no round begins by itself. */
TEST(a_master_without_its_replicas_has_the_sentinels_asked_at_once) {
    struct conn c;

    begin(&c);
    loop_clock_stop();
    loop_clock_forward(500);
    TURN_UNTIL(&c, idle_at(0) >= 3);
    tell(&farm.servers[0], "CONFIG", "SET", "min-replicas-to-write", "2");
    CHECK(is_refused(&c, "NOREPLICAS"));
    TURN_UNTIL(&c, idle_at(0) < 3);
    end(&c);
}

int main(int argc, char **argv) {
    test_at_a_time = 3; /* each test has servers of its own */
    return test_main(argc, argv);
}
