/*
 * The consumer for tests. Whatever it is told that it must not be, or does not come
 * in time, ends the test.
 */
#include "test_consumer.h"

#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "temp.h"
#include "wait.h"

#define WAIT_MS (WAIT_LIMIT_S * 1000)

/* Call-backs. */

static size_t index_of(const struct taker *taker, const struct queue_message *message) {
    size_t i = 0;

    while (i < taker->n && taker->got[i] != message)
        i++;
    CHECK(i < taker->n);
    return i;
}

static void on_message(void *data, struct queue_message *message) {
    struct taker *taker = data;
    size_t i = taker->n++;

    CHECK(!taker->calling);
    CHECK(i < TAKER_MAX);
    taker->got[i] = message;
    taker->out++;
    CHECK(taker->out <= taker->prefetch);
    snprintf(taker->ids[i], sizeof(taker->ids[i]), "%s", stream_message_of(message)->id);
    if (taker->on_message != NULL)
        taker->on_message(taker, i);
}

static void on_gone(void *data, struct queue_message *message) {
    struct taker *taker = data;

    CHECK(!taker->calling);
    (void)index_of(taker, message);
    taker->gone++;
    if (taker->on_gone != NULL)
        taker->on_gone(taker);
}

static void on_state(void *data, bool ready, const char *text) {
    struct taker *taker = data;
    size_t len = strlen(taker->text);

    CHECK(!taker->calling);
    taker->ready = ready;
    taker->states++;
    CHECK(len + strlen(text) + 2 < sizeof(taker->text));
    snprintf(taker->text + len, sizeof(taker->text) - len, "%s\n", text);
    if (taker->on_state != NULL)
        taker->on_state(taker);
}

static void on_told(void *data, bool taken, const char *why) {
    struct taker *taker = data;

    CHECK(!taker->calling);
    CHECK(taken || why != NULL);
    taker->told++;
    taker->taken = taken;
    snprintf(taker->why, sizeof(taker->why), "%s", why == NULL ? "" : why);
    if (taker->on_told != NULL)
        taker->on_told(taker);
}

/* Opening. */

void taker_begin(struct taker *taker, const struct queue_config *config) {
    struct queue_events events = {
        .data = taker, .message = on_message, .gone = on_gone, .state = on_state};
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
    memset(taker, 0, sizeof(*taker));
    taker->prefetch = full.prefetch;
    CHECK_INT(host_init(&taker->host, HOST_EDGE), 0);
    calls = host_calls(&taker->host);
    idem_loop_init(&taker->loop, &calls);
    host_sink_loop(&taker->host, &taker->loop);
    taker->calling = true;
    if (queue_broker_stream.open(&full, &taker->loop, &events, &taker->link, &err) != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(taker->link != NULL);
    taker->calling = false;
}

void taker_open(struct taker *taker, const struct queue_config *config) {
    stream_close_ms = WAIT_MS;
    taker_begin(taker, config);
    taker_until_text(taker, "connected to");
    CHECK(taker->ready);
    queue_broker_stream.fetch(taker->link, true);
}

void taker_open_as(struct taker *taker, const char *consumer) {
    taker_open(taker, &(struct queue_config){.consumer = consumer});
}

void taker_open_proxied(struct taker *taker, const char *consumer, const char *options,
                        int64_t lease_ms) {
    char url[300];

    snprintf(url, sizeof(url), "redis:%s?%s", proxy.path, options);
    taker_open(taker,
               &(struct queue_config){.url = url, .consumer = consumer, .lease_ms = lease_ms});
}

void taker_close(struct taker *taker) {
    taker->calling = true;
    queue_broker_stream.close(taker->link);
    taker->link = NULL;
    idem_loop_stop(&taker->loop);
    host_release(&taker->host);
}

void taker_hurry(struct taker *taker) {
    struct stream_link *link = stream_link_of(taker->link);

    link->claim_ms = 300;
    link->claim_due = 0;
    link->renew_ms = 100; /* and with it all that is done each second */
    taker_block(taker, 1500);
}

void taker_block(struct taker *taker, int64_t ms) {
    struct stream_link *link = stream_link_of(taker->link);

    link->reading_config.timeout_ms += ms - link->block_ms;
    link->block_ms = ms;
}

/* Waiting. */

void taker_turn(struct taker *taker, int64_t ms) {
    CHECK_INT(host_turn(&taker->host, ms), 0);
}

void taker_idle(struct taker *taker, int64_t ms) {
    int64_t end = idem_loop_now() + ms, left;

    while ((left = end - idem_loop_now()) > 0)
        taker_turn(taker, left);
}

static void late(const struct taker *taker, const char *what, int64_t end) {
    if (idem_loop_now() < end)
        return;
    fprintf(stderr, "# not in time: %s; %zu came, %zu are gone; it said:\n%s", what, taker->n,
            taker->gone, taker->text);
    exit(1);
}

void taker_until(struct taker *taker, size_t n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; taker->n < n; late(taker, "messages", end))
        taker_turn(taker, 100);
}

void taker_until_text(struct taker *taker, const char *text) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; strstr(taker->text, text) == NULL; late(taker, text, end))
        taker_turn(taker, 100);
}

void taker_until_gone(struct taker *taker, size_t n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; taker->gone < n; late(taker, "gone", end))
        taker_turn(taker, 100);
}

void taker_sync(struct taker *taker) {
    const struct redis_conn *conn = &stream_link_of(taker->link)->command;
    int64_t end = idem_loop_now() + WAIT_MS;

    do {
        taker_turn(taker, 5);
        late(taker, "answers", end);
    } while (conn->state != REDIS_CONN_READY || conn->wants_n > 0 || conn->out.len > conn->out_at);
}

void taker_due(struct taker *taker) {
    struct stream_link *link = stream_link_of(taker->link);

    for (struct stream_entry *entry = link->lists[STREAM_DELAYED].first; entry != NULL;
         entry = entry->next)
        idem_timer_set(link->loop, &entry->due, 0);
}

/* Giving back. */

static struct queue_message *give(struct taker *taker, size_t i) {
    struct queue_message *message = taker->got[i];

    CHECK(i < taker->n && message != NULL);
    taker->got[i] = NULL;
    taker->out--;
    taker->calling = true;
    return message;
}

void taker_ack(struct taker *taker, size_t i) {
    queue_broker_stream.ack(taker->link, give(taker, i));
    taker->calling = false;
}

void taker_give(struct taker *taker, size_t i) {
    queue_broker_stream.giveback(taker->link, give(taker, i));
    taker->calling = false;
}

void taker_extend(struct taker *taker, size_t i) {
    queue_broker_stream.extend(taker->link, &taker->got[i], 1);
}

bool taker_told(struct taker *taker, unsigned before) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; taker->told == before; late(taker, "told", end))
        taker_turn(taker, 100);
    CHECK_INT(taker->told, before + 1);
    return taker->taken;
}

bool taker_delay(struct taker *taker, size_t i, int64_t ms) {
    struct queue_message *message = give(taker, i);
    unsigned before = taker->told;

    queue_broker_stream.delay(taker->link, message, ms, on_told, taker);
    taker->calling = false;
    if (taker_told(taker, before))
        return true;
    taker->got[i] = message;
    taker->out++;
    return false;
}

unsigned taker_bury_begin(struct taker *taker, size_t i, const struct queue_epitaph *epitaph) {
    unsigned before = taker->told;

    taker->calling = true;
    queue_broker_stream.bury(taker->link, taker->got[i], epitaph, on_told, taker);
    taker->calling = false;
    return before;
}

bool taker_bury(struct taker *taker, size_t i, const struct queue_epitaph *epitaph) {
    return taker_told(taker, taker_bury_begin(taker, i, epitaph));
}

/* Messages. */

static const char *text_of(struct idem_bytes bytes) {
    static char texts[4][300];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]), "%.*s", (int)bytes.len, (const char *)bytes.at);
    return text;
}

const char *body_of(const struct taker *taker, size_t i) {
    CHECK(i < taker->n && taker->got[i] != NULL);
    return text_of(taker->got[i]->body);
}

static const char *field_of(const struct queue_field *fields, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (fields[i].name.len == strlen(name) &&
            memcmp(fields[i].name.at, name, strlen(name)) == 0)
            return text_of(fields[i].value);
    return NULL;
}

const char *property_of(const struct taker *taker, size_t i, const char *name) {
    return field_of(taker->got[i]->properties, taker->got[i]->properties_n, name);
}

const char *header_of(const struct taker *taker, size_t i, const char *name) {
    return field_of(taker->got[i]->headers, taker->got[i]->headers_n, name);
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

const char *say_bytes(struct redis_buffer *command) {
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
    redis_buffer_release(command);
    return answer;
}

const char *say(const char *first, ...) {
    struct redis_buffer command = {0};
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

/* [id, consumer, idle, deliveries] each; the answer's head has their number. */
long pending(const char *consumer) {
    const char *answer = consumer[0] == '\0'
                             ? say("XPENDING", "q", "idem", "-", "+", "1000", NULL)
                             : say("XPENDING", "q", "idem", "-", "+", "1000", consumer, NULL);

    return answer[0] == '*' ? strtol(answer + 1, NULL, 10) : -1;
}

/* The number behind a name in what INFO says; 0: it is not there. */
static long info_of(const char *section, const char *name) {
    const char *at = strstr(say("INFO", section, NULL), name);

    return at == NULL ? 0 : strtol(at + strlen(name), NULL, 10);
}

void blocked_until(struct taker *taker, long n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; info_of("clients", "blocked_clients:") != n; late(taker, "blocked reads", end))
        taker_turn(taker, 5);
}

long calls_of(const char *command) {
    char name[64];

    snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
    return info_of("commandstats", name);
}

void calls_until(struct taker *taker, const char *command, long more) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (more += calls_of(command); calls_of(command) < more; late(taker, command, end))
        taker_turn(taker, 5);
}

void pending_until(struct taker *taker, const char *consumer, long n) {
    int64_t end = idem_loop_now() + WAIT_MS;

    for (; pending(consumer) != n; late(taker, "pending", end))
        taker_turn(taker, 20);
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
