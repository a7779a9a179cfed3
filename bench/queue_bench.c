/*
 * Messages per second of the consumer with a handler that does nothing, in its own
 * process, beside a bare consumer of librabbitmq's with the same prefetch, which
 * acknowledges each message as it comes.
 *
 *     bench-queue URL fill QUEUE MESSAGES FIRST       publishes {"orderId": N}, with confirms
 *     bench-queue URL bare QUEUE MESSAGES PREFETCH    each prints messages per second, and
 *     bench-queue URL idem QUEUE MESSAGES PREFETCH STORE     microseconds of CPU time for each
 *     bench-queue URL bare-jsonl QUEUE MESSAGES PREFETCH COMMAND    to a worker and back, one at a
 *     bench-queue URL bare-to QUEUE MESSAGES PREFETCH ENDPOINT      time, and then acknowledged
 *     bench-queue - worker    such a worker: responds to each line {"id": N, ...} with done
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <curl/curl.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/handle.h"
#include "queue/amqp/rabbit.h"
#include "queue/consumer.h"

#define CONFIRM_EVERY 1000

static double now_s(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* From the first message to the last. */
struct lap {
    long messages, n;
    double from, cpu;
};

static void lap_count(struct lap *lap) {
    if (lap->n++ == 0) {
        lap->from = now_s();
        lap->cpu = cpu_s();
    }
    if (lap->n == lap->messages)
        printf("%.0f %.2f\n", (double)lap->n / (now_s() - lap->from),
               (cpu_s() - lap->cpu) * 1e6 / (double)lap->n);
}

/* Bare. */

static amqp_connection_state_t connection_open(const char *url) {
    amqp_connection_state_t conn = amqp_new_connection();
    struct rabbit_config config;
    struct idem_error error;

    if (rabbit_config_read(url, &config, &error) < 0)
        errx(1, "%s", error.text);
    if (amqp_socket_open(amqp_tcp_socket_new(conn), config.hosts[0].name, config.hosts[0].port) !=
            AMQP_STATUS_OK ||
        amqp_login(conn, config.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, config.user,
                   config.password)
                .reply_type != AMQP_RESPONSE_NORMAL)
        errx(1, "cannot log in");
    amqp_channel_open(conn, 1);
    if (amqp_get_rpc_reply(conn).reply_type != AMQP_RESPONSE_NORMAL)
        errx(1, "no channel");
    rabbit_config_release(&config);
    return conn;
}

/* Waits until all that was published is confirmed. */
static void confirms_wait(amqp_connection_state_t conn, uint64_t upto) {
    amqp_frame_t frame;

    for (uint64_t seen = 0; seen < upto;) {
        if (amqp_simple_wait_frame(conn, &frame) != AMQP_STATUS_OK ||
            frame.frame_type != AMQP_FRAME_METHOD ||
            frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            errx(1, "not confirmed");
        seen = ((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag;
    }
}

static void fill(const char *url, const char *queue, long messages, long first) {
    amqp_connection_state_t conn = connection_open(url);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG, .delivery_mode = 2};
    char body[64], id[32];

    amqp_queue_declare(conn, 1, amqp_cstring_bytes(queue), 0, 1, 0, 0, amqp_empty_table);
    amqp_confirm_select(conn, 1);
    for (long i = 0; i < messages; i++) {
        snprintf(body, sizeof(body), "{\"orderId\": %ld}", first + i);
        snprintf(id, sizeof(id), "m-%ld", first + i);
        properties.message_id = amqp_cstring_bytes(id);
        if (amqp_basic_publish(conn, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0,
                               &properties, amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
            errx(1, "cannot publish");
        if ((i + 1) % CONFIRM_EVERY == 0 || i + 1 == messages)
            confirms_wait(conn, (uint64_t)i + 1);
    }
    amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(conn);
}

typedef void handle_fn(void *data, amqp_bytes_t body, long n);

static void bare(const char *url, const char *queue, long messages, unsigned prefetch,
                 handle_fn *handle, void *data) {
    amqp_connection_state_t conn = connection_open(url);
    struct lap lap = {.messages = messages};

    amqp_basic_qos(conn, 1, 0, (uint16_t)prefetch, 0);
    amqp_basic_consume(conn, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0,
                       amqp_empty_table);
    for (long i = 0; i < messages; i++) {
        amqp_envelope_t envelope;

        amqp_maybe_release_buffers(conn);
        if (amqp_consume_message(conn, &envelope, NULL, 0).reply_type != AMQP_RESPONSE_NORMAL)
            errx(1, "no message");
        if (handle != NULL)
            handle(data, envelope.message.body, i);
        if (amqp_basic_ack(conn, 1, envelope.delivery_tag, 0) != AMQP_STATUS_OK)
            errx(1, "cannot acknowledge");
        amqp_destroy_envelope(&envelope);
        lap_count(&lap);
    }
    amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(conn);
}

/* A worker: it reads a line, and responds with one. */
struct worker {
    FILE *to, *from;
    pid_t pid;
};

static struct worker worker_start(const char *command) {
    struct worker worker;
    int in[2], out[2];

    if (pipe(in) < 0 || pipe(out) < 0 || (worker.pid = fork()) < 0)
        err(1, "worker");
    if (worker.pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    worker.to = fdopen(in[1], "w");
    worker.from = fdopen(out[0], "r");
    return worker;
}

static void worker_ask(void *data, amqp_bytes_t body, long n) {
    struct worker *worker = data;
    char line[4096];

    fprintf(worker->to, "{\"id\": %ld, \"body\": %.*s}\n", n, (int)body.len, (char *)body.bytes);
    fflush(worker->to);
    if (fgets(line, sizeof(line), worker->from) == NULL)
        errx(1, "the worker has ended");
}

static int worker_run(void) {
    char line[4096];
    long id;

    while (fgets(line, sizeof(line), stdin) != NULL) {
        const char *at = strstr(line, "\"id\":");

        id = at == NULL ? 0 : strtol(at + 5, NULL, 10);
        printf("{\"id\": %ld, \"result\": \"done\"}\n", id);
        fflush(stdout);
    }
    return 0;
}

static void post(void *data, amqp_bytes_t body, long n) {
    CURL *curl = data;

    (void)n;
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.len);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.bytes);
    if (curl_easy_perform(curl) != CURLE_OK)
        errx(1, "cannot post");
}

static size_t drop(char *bytes, size_t size, size_t n, void *data) {
    (void)bytes;
    (void)data;
    return size * n;
}

/* Idem's consumer. */

struct ours {
    struct idem_poll poll;
    struct idem *h;
    struct idem_task task;
    struct queue_run *first, **end; /* begun, and not reported yet */
    struct lap lap;
    bool stopped;
};

static void told_all(struct idem_task *task) {
    struct ours *ours = idem_container_of(task, struct ours, task);
    struct queue_outcome done = {.result = QUEUE_DONE};
    struct queue_run *work = ours->first, *next;

    ours->first = NULL;
    ours->end = &ours->first;
    for (; work != NULL; work = next) {
        next = work->data;
        work->finished(work, &done);
    }
}

static void begin(void *data, struct queue_run *work) {
    struct ours *ours = data;

    work->data = NULL;
    *ours->end = work;
    ours->end = (struct queue_run **)&work->data;
    idem_task_post(&ours->h->loop, &ours->task);
}

static void cancel(void *data, struct queue_run *work) {
    (void)data;
    (void)work;
}

static void reported(void *data, const struct queue_report *report) {
    struct ours *ours = data;

    if (strcmp(report->then, "ack") == 0)
        lap_count(&ours->lap);
}

static void stopped(void *data) {
    struct ours *ours = data;

    ours->stopped = true;
}

static void ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void timeout(void *sink) {
    idem_timeout(sink);
}

static struct idem_guard *guard_of(const char *key_expr) {
    struct idem_policy policy = {.prefix = "bench:",
                                 .scope = IDEM_SCOPE_NONE,
                                 .preset = IDEM_PRESET_QUEUE,
                                 .key_expr = key_expr};
    struct idem_guard *guard;
    struct idem_error error;

    if (idem_guard_make(NULL, &policy, NULL, &guard, &error) < 0)
        errx(1, "%s", error.text);
    return guard;
}

static void idem(const char *url, const char *queue, long messages, unsigned prefetch,
                 const char *store) {
    struct ours ours = {.task.run = told_all, .lap.messages = messages};
    struct idem_host host;
    struct idem_error error;
    struct queue_consumer *consumer;
    struct queue_consumer_config config = {
        .guard = guard_of(NULL),
        .keying = {.kind = QUEUE_KEY_EXPRESSION, .guard = guard_of("#body.orderId")},
        .broker = queue_broker_find(url, &error),
        .queue = {.url = url,
                  .queue = queue,
                  .prefetch = prefetch,
                  .lease_ms = 30000,
                  .delay_max_ms = 300000},
        .handler = {&ours, prefetch, begin, cancel},
        .events = {&ours, reported, NULL, stopped},
    };

    ours.end = &ours.first;
    idem_poll_init(&ours.poll);
    ours.poll.ready = ready;
    ours.poll.timeout = timeout;
    host = idem_poll_host(&ours.poll);
    if (config.broker == NULL || idem_open_on(store, NULL, &host, &ours.h, &error) < 0)
        errx(1, "%s", error.text);
    ours.poll.sink = config.h = ours.h;
    if (queue_consumer_new(&config, &consumer, &error) < 0)
        errx(1, "%s", error.text);
    while (ours.lap.n < messages)
        (void)idem_poll_turn(&ours.poll, NULL, 0, 1000);
    queue_consumer_stop(consumer, 5000);
    while (!ours.stopped)
        (void)idem_poll_turn(&ours.poll, NULL, 0, 100);
    queue_consumer_free(consumer);
    idem_close(ours.h);
}

static int usage(void) {
    fputs(
        "usage: bench-queue URL fill|bare|idem|bare-jsonl|bare-to QUEUE MESSAGES PREFETCH [...]\n",
        stderr);
    return 64;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[2] : "";
    long messages, number;

    if (strcmp(what, "worker") == 0)
        return worker_run();
    if (argc < 6)
        return usage();
    messages = strtol(argv[4], NULL, 10);
    number = strtol(argv[5], NULL, 10);
    if (strcmp(what, "fill") == 0) {
        fill(argv[1], argv[3], messages, number);
    } else if (strcmp(what, "bare") == 0) {
        bare(argv[1], argv[3], messages, (unsigned)number, NULL, NULL);
    } else if (strcmp(what, "bare-jsonl") == 0 && argc > 6) {
        struct worker worker = worker_start(argv[6]);

        bare(argv[1], argv[3], messages, (unsigned)number, worker_ask, &worker);
        fclose(worker.to);
        waitpid(worker.pid, NULL, 0);
    } else if (strcmp(what, "bare-to") == 0 && argc > 6) {
        CURL *curl = curl_easy_init();

        curl_easy_setopt(curl, CURLOPT_URL, argv[6]);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
        bare(argv[1], argv[3], messages, (unsigned)number, post, curl);
        curl_easy_cleanup(curl);
    } else if (strcmp(what, "idem") == 0 && argc > 6) {
        idem(argv[1], argv[3], messages, (unsigned)number, argv[6]);
    } else {
        return usage();
    }
    return 0;
}
