/*
 * The broker with each of its allocations failing, one at a time: it may have
 * to reconnect, but every message comes, every callback runs, all is
 * acknowledged, and nothing is leaked.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "../../contract/alloc_each.h"
#include "../../contract/host.h"
#include "queue/stream/stream.h"
#include "store/redis/server.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

static struct server server;
static char url[400];

static struct {
    struct host host;
    struct idem_loop loop;
    struct queue_link *link;
    struct queue_message *message;
    unsigned came, told;
    bool taken;
} on;

/* Calls glibc directly, so that the test's own allocations do not fail. */
static void server_say(const char *bytes) {
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer[256];

    memcpy(path.sun_path, server.socket, strlen(server.socket) + 1);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&path, sizeof(path)) == 0);
    CHECK(send(fd, bytes, strlen(bytes), 0) == (ssize_t)strlen(bytes));
    CHECK(recv(fd, answer, sizeof(answer), 0) > 0);
    CHECK(answer[0] != '-');
    close(fd);
}

static void on_message(void *data, struct queue_message *message) {
    (void)data;
    CHECK(on.message == NULL);
    on.message = message;
    on.came++;
}

static void on_gone(void *data, struct queue_message *message) {
    (void)data;
    (void)message;
    CHECK(false);
}

static void on_state(void *data, bool ready, const char *text) {
    (void)data;
    (void)ready;
    (void)text;
}

static void on_told(void *data, bool taken, const char *why) {
    (void)data;
    (void)why;
    on.told++;
    on.taken = taken;
}

static void turn_until(const unsigned *count, unsigned n) {
    WAIT_BY(CHECK_INT(host_turn(&on.host, 100), 0), *count >= n);
}

static void bury(void) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead", .reason = "x"};

    do { /* the test's time limit ends it */
        unsigned before = on.told;

        queue_broker_stream.bury(on.link, on.message, &dead_fields, on_told, NULL);
        turn_until(&on.told, before + 1);
        CHECK_INT(host_turn(&on.host, 10), 0);
    } while (!on.taken);
}

/* One message is delayed, comes again, is buried and acked; another is given back and comes
 * again. */
static void work(void) {
    queue_broker_stream.fetch(on.link, true);
    turn_until(&on.came, 1);
    queue_broker_stream.extend(on.link, &on.message, 1);
    queue_broker_stream.delay(on.link, on.message, 0, on_told, NULL);
    on.message = NULL;
    turn_until(&on.told, 1);
    turn_until(&on.came, 2);
    bury();
    queue_broker_stream.ack(on.link, on.message);
    on.message = NULL;
    turn_until(&on.came, 3);
    queue_broker_stream.nack(on.link, on.message);
    on.message = NULL;
    turn_until(&on.came, 4);
    queue_broker_stream.ack(on.link, on.message);
    on.message = NULL;
}

static int scenario(struct idem_error *err) {
    const struct queue_config config = {
        .url = url, .queue = "q", .consumer = "me", .prefetch = 1, .lease_ms = 1000};
    const struct queue_events events = {.message = on_message, .gone = on_gone, .state = on_state};
    struct idem_host calls;
    int rc;

    memset(&on, 0, sizeof(on));
    server_say("*1\r\n$8\r\nFLUSHALL\r\n");
    server_say("*5\r\n$4\r\nXADD\r\n$1\r\nq\r\n$3\r\n1-1\r\n$4\r\nbody\r\n$1\r\nx\r\n");
    server_say("*5\r\n$4\r\nXADD\r\n$1\r\nq\r\n$3\r\n1-2\r\n$4\r\nbody\r\n$1\r\ny\r\n");
    CHECK_INT(host_init(&on.host, HOST_EDGE), 0);
    calls = host_calls(&on.host);
    idem_loop_init(&on.loop, &calls);
    host_sink_loop(&on.host, &on.loop);
    rc = queue_broker_stream.open(&config, &on.loop, &events, &on.link, err);
    if (rc == 0) {
        stream_link_of(on.link)->renew_ms = 20; /* work of once per second comes sooner */
        work();
        queue_broker_stream.close(on.link);
    }
    idem_loop_stop(&on.loop);
    host_release(&on.host);
    return rc;
}

TEST_IN(no_allocation_that_fails_loses_a_message, 240) {
    static const char *const args[] = {"--save", "", "--appendonly", "no", NULL};
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", false, args, -1);
    snprintf(url, sizeof(url), "redis:%s", server.socket);
    alloc_fail_each(scenario, ALLOC_FAIL_ONCE, 60);
}

TEST_MAIN
