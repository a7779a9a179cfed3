/*
 * The consumer for tests. A report that must not come, and one that does not
 * come in time, fail the test.
 */
#include "test_consumer.h"

#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "temp.h"
#include "wait.h"

#define WAIT_MS (WAIT_LIMIT_S * 1000)

/* Callbacks. */

static size_t index_of(const struct test_consumer *consumer, const struct queue_message *message) {
    size_t i = 0;

    while (i < consumer->n && consumer->got[i] != message)
        i++;
    CHECK(i < consumer->n);
    return i;
}

static void on_message(void *data, struct queue_message *message) {
    struct test_consumer *consumer = data;
    size_t i = consumer->n++;

    CHECK(!consumer->calling);
    CHECK(i < TEST_CONSUMER_MAX);
    consumer->got[i] = message;
    consumer->out++;
    CHECK(consumer->out <= consumer->prefetch);
    snprintf(consumer->ids[i], sizeof(consumer->ids[i]), "%s", stream_message_of(message)->id);
    if (consumer->on_message != NULL)
        consumer->on_message(consumer, i);
}

static void on_gone(void *data, struct queue_message *message) {
    struct test_consumer *consumer = data;

    CHECK(!consumer->calling);
    (void)index_of(consumer, message);
    consumer->gone++;
    if (consumer->on_gone != NULL)
        consumer->on_gone(consumer);
}

static void on_state(void *data, bool ready, const char *text) {
    struct test_consumer *consumer = data;
    size_t len = strlen(consumer->text);

    CHECK(!consumer->calling);
    consumer->ready = ready;
    consumer->states++;
    CHECK(len + strlen(text) + 2 < sizeof(consumer->text));
    snprintf(consumer->text + len, sizeof(consumer->text) - len, "%s\n", text);
    if (consumer->on_state != NULL)
        consumer->on_state(consumer);
}

static void on_told(void *data, bool taken, const char *why) {
    struct test_consumer *consumer = data;

    CHECK(!consumer->calling);
    CHECK(taken || why != NULL);
    consumer->told++;
    consumer->taken = taken;
    snprintf(consumer->why, sizeof(consumer->why), "%s", why == NULL ? "" : why);
    if (consumer->on_told != NULL)
        consumer->on_told(consumer);
}

/* Opening. */

void test_consumer_begin(struct test_consumer *consumer, const struct queue_config *config) {
    struct queue_events events = {
        .data = consumer, .message = on_message, .gone = on_gone, .state = on_state};
    struct queue_config full = *config;
    struct idem_host calls;
    struct idem_error err = {0};
    char url[400];

    snprintf(url, sizeof(url), "redis:%s?timeout=%ds&connect_timeout=%ds", server.socket,
             WAIT_LIMIT_S, WAIT_LIMIT_S);
    full.url = full.url == NULL ? url : full.url;
    full.queue = full.queue == NULL ? "q" : full.queue;
    full.consumer = full.consumer == NULL ? "me" : full.consumer;
    full.lease_ms = full.lease_ms == 0 ? 1000 : full.lease_ms;
    full.prefetch = full.prefetch == 0 ? 16 : full.prefetch;
    memset(consumer, 0, sizeof(*consumer));
    consumer->prefetch = full.prefetch;
    CHECK_INT(host_init(&consumer->host, HOST_EDGE), 0);
    calls = host_calls(&consumer->host);
    idem_loop_init(&consumer->loop, &calls);
    host_sink_loop(&consumer->host, &consumer->loop);
    consumer->calling = true;
    if (queue_broker_stream.open(&full, &consumer->loop, &events, &consumer->link, &err) != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(consumer->link != NULL);
    consumer->calling = false;
}

void test_consumer_open(struct test_consumer *consumer, const struct queue_config *config) {
    stream_close_ms = WAIT_MS;
    test_consumer_begin(consumer, config);
    test_consumer_until_text(consumer, "connected to");
    CHECK(consumer->ready);
    queue_broker_stream.fetch(consumer->link, true);
}

void test_consumer_open_as(struct test_consumer *consumer, const char *name) {
    test_consumer_open(consumer, &(struct queue_config){.consumer = name});
}

void test_consumer_open_proxied(struct test_consumer *consumer, const char *name,
                                const char *options, int64_t lease_ms) {
    char url[300];

    snprintf(url, sizeof(url), "redis:%s?%s", proxy.path, options);
    test_consumer_open(consumer,
                       &(struct queue_config){.url = url, .consumer = name, .lease_ms = lease_ms});
}

void test_consumer_close(struct test_consumer *consumer) {
    consumer->calling = true;
    queue_broker_stream.close(consumer->link);
    consumer->link = NULL;
    idem_loop_stop(&consumer->loop);
    host_release(&consumer->host);
}

void test_consumer_hurry(struct test_consumer *consumer) {
    struct stream_link *link = stream_link_of(consumer->link);

    link->claim_ms = 300;
    link->claim_due = 0;
    link->renew_ms = 100; /* also speeds up the other periodic work */
    test_consumer_block(consumer, 1500);
}

void test_consumer_block(struct test_consumer *consumer, int64_t ms) {
    struct stream_link *link = stream_link_of(consumer->link);

    link->reading_config.timeout_ms += ms - link->block_ms;
    link->block_ms = ms;
}

/* Waiting. */

void test_consumer_turn(struct test_consumer *consumer, int64_t ms) {
    CHECK_INT(host_turn(&consumer->host, ms), 0);
}

void test_consumer_idle(struct test_consumer *consumer, int64_t ms) {
    int64_t end = idem_loop_now() + ms, left;

    while ((left = end - idem_loop_now()) > 0)
        test_consumer_turn(consumer, left);
}

static void late(const struct test_consumer *consumer, const char *what, int64_t end) {
    if (idem_loop_now() < end)
        return;
    fprintf(stderr, "# not in time: %s; %zu came, %zu are gone; its lines:\n%s", what, consumer->n,
            consumer->gone, consumer->text);
    exit(1);
}

void test_consumer_until(struct test_consumer *consumer, size_t n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; consumer->n < n; late(consumer, "messages", end))
        test_consumer_turn(consumer, 100);
}

void test_consumer_until_text(struct test_consumer *consumer, const char *text) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; strstr(consumer->text, text) == NULL; late(consumer, text, end))
        test_consumer_turn(consumer, 100);
}

void test_consumer_until_gone(struct test_consumer *consumer, size_t n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; consumer->gone < n; late(consumer, "gone", end))
        test_consumer_turn(consumer, 100);
}

void test_consumer_sync(struct test_consumer *consumer) {
    const struct redis_conn *conn = &stream_link_of(consumer->link)->command;
    int64_t end = idem_loop_now() + WAIT_MS;

    do {
        test_consumer_turn(consumer, 5);
        late(consumer, "answers", end);
    } while (conn->state != REDIS_CONN_READY || conn->pending_n > 0 ||
             conn->out.len > conn->out_at);
}

void test_consumer_due(struct test_consumer *consumer) {
    struct stream_link *link = stream_link_of(consumer->link);

    for (struct stream_entry *entry = link->lists[STREAM_DELAYED].first; entry != NULL;
         entry = entry->next)
        idem_timer_set(link->loop, &entry->due, 0);
}

/* Giving back. */

static struct queue_message *give(struct test_consumer *consumer, size_t i) {
    struct queue_message *message = consumer->got[i];

    CHECK(i < consumer->n && message != NULL);
    consumer->got[i] = NULL;
    consumer->out--;
    consumer->calling = true;
    return message;
}

void test_consumer_ack(struct test_consumer *consumer, size_t i) {
    queue_broker_stream.ack(consumer->link, give(consumer, i));
    consumer->calling = false;
}

void test_consumer_give(struct test_consumer *consumer, size_t i) {
    queue_broker_stream.nack(consumer->link, give(consumer, i));
    consumer->calling = false;
}

void test_consumer_extend(struct test_consumer *consumer, size_t i) {
    queue_broker_stream.extend(consumer->link, &consumer->got[i], 1);
}

bool test_consumer_told(struct test_consumer *consumer, unsigned before) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; consumer->told == before; late(consumer, "told", end))
        test_consumer_turn(consumer, 100);
    CHECK_INT(consumer->told, before + 1);
    return consumer->taken;
}

bool test_consumer_delay(struct test_consumer *consumer, size_t i, int64_t ms) {
    struct queue_message *message = give(consumer, i);
    unsigned before = consumer->told;

    queue_broker_stream.delay(consumer->link, message, ms, on_told, consumer);
    consumer->calling = false;
    if (test_consumer_told(consumer, before))
        return true;
    consumer->got[i] = message;
    consumer->out++;
    return false;
}

unsigned test_consumer_bury_begin(struct test_consumer *consumer, size_t i,
                                  const struct queue_dead_fields *dead_fields) {
    unsigned before = consumer->told;

    consumer->calling = true;
    queue_broker_stream.bury(consumer->link, consumer->got[i], dead_fields, on_told, consumer);
    consumer->calling = false;
    return before;
}

bool test_consumer_bury(struct test_consumer *consumer, size_t i,
                        const struct queue_dead_fields *dead_fields) {
    return test_consumer_told(consumer, test_consumer_bury_begin(consumer, i, dead_fields));
}

/* Messages. */

static const char *text_of(struct idem_bytes bytes) {
    static char texts[4][300];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]), "%.*s", (int)bytes.len, (const char *)bytes.at);
    return text;
}

const char *body_of(const struct test_consumer *consumer, size_t i) {
    CHECK(i < consumer->n && consumer->got[i] != NULL);
    return text_of(consumer->got[i]->body);
}

static const char *field_of(const struct queue_field *fields, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (fields[i].name.len == strlen(name) &&
            memcmp(fields[i].name.at, name, strlen(name)) == 0)
            return text_of(fields[i].value);
    return NULL;
}

const char *property_of(const struct test_consumer *consumer, size_t i, const char *name) {
    return field_of(consumer->got[i]->properties, consumer->got[i]->properties_n, name);
}

const char *header_of(const struct test_consumer *consumer, size_t i, const char *name) {
    return field_of(consumer->got[i]->headers, consumer->got[i]->headers_n, name);
}

/* The server. */

static int server_reach(void) {
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = WAIT_LIMIT_S};

    snprintf(path.sun_path, sizeof(path.sun_path), "%.107s", server.socket);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&path, sizeof(path)) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

const char *say_bytes(struct idem_buffer *command) {
    static char answer[1 << 16];
    int fd = server_reach();
    ssize_t n;

    CHECK(!command->failed);
    for (size_t at = 0; at < command->len; at += (size_t)n) {
        n = send(fd, command->at + at, command->len - at, MSG_NOSIGNAL);
        CHECK(n > 0);
    }
    n = recv(fd, answer, sizeof(answer) - 1, 0);
    CHECK(n > 0);
    answer[n] = '\0';
    close(fd);
    idem_buffer_release(command);
    return answer;
}

const char *say(const char *first, ...) {
    struct idem_buffer command = {0};
    const char *word;
    size_t n = 0;
    va_list args;

    va_start(args, first);
    for (word = first; word != NULL; word = va_arg(args, const char *))
        n++;
    va_end(args);
    redis_put_head(&command, n);
    va_start(args, first);
    for (word = first; word != NULL; word = va_arg(args, const char *))
        redis_put_text(&command, word);
    va_end(args);
    return say_bytes(&command);
}

void add(const char *body) {
    CHECK(say("XADD", "q", "*", "body", body, NULL)[0] == '$');
}

void add_n(unsigned n, unsigned from) {
    for (unsigned i = 0; i < n; i++)
        add(numbered("m", from + i));
}

/* [id, consumer, idle, deliveries] each; the head of the reply has their number. */
long pending(const char *name) {
    const char *answer = name[0] == '\0'
                             ? say("XPENDING", "q", "idem", "-", "+", "1000", NULL)
                             : say("XPENDING", "q", "idem", "-", "+", "1000", name, NULL);

    return answer[0] == '*' ? strtol(answer + 1, NULL, 10) : -1;
}

/* The number after a name in the output of INFO; 0: it is not there. */
static long info_of(const char *section, const char *name) {
    const char *at = strstr(say("INFO", section, NULL), name);

    return at == NULL ? 0 : strtol(at + strlen(name), NULL, 10);
}

void blocked_until(struct test_consumer *consumer, long n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; info_of("clients", "blocked_clients:") != n; late(consumer, "blocked reads", end))
        test_consumer_turn(consumer, 5);
}

long calls_of(const char *command) {
    char name[64];

    snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
    return info_of("commandstats", name);
}

void calls_until(struct test_consumer *consumer, const char *command, long more) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (more += calls_of(command); calls_of(command) < more; late(consumer, command, end))
        test_consumer_turn(consumer, 5);
}

void pending_until(struct test_consumer *consumer, const char *name, long n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; pending(name) != n; late(consumer, "pending", end))
        test_consumer_turn(consumer, 20);
}

/* Time. */

static struct shared_clock *server_time;

static void begin(int clock_fd) {
    static const char *const args[] = {"--save", "", "--appendonly", "no", NULL};
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", false, args, clock_fd);
}

void server_begin_light(void) {
    begin(-1);
}

void server_begin_timed(void) {
    int fd;

    server_time = clock_share(&fd);
    clock_reset(server_time);
    begin(fd);
}

void time_pass(int64_t ms) {
    server_time->wall += ms;
}
