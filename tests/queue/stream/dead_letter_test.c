/* Dead letters of a stream, as the operator's commands read them. */
#include <pthread.h>

#include "loop_clock.h"
#include "queue/dead_letter.h"
#include "temp.h"
#include "test_consumer.h"
#include "wait.h"

static const struct queue_dead_broker *const broker = &queue_dead_broker_stream;

static int dead_try(const char *queue, struct queue_dead **ret, struct idem_error *err) {
    char url[400];

    snprintf(url, sizeof(url), "redis:%s?timeout=%ds&connect_timeout=%ds", server.socket,
             WAIT_LIMIT_S, WAIT_LIMIT_S);
    return broker->open(
        &(struct queue_dead_config){.url = url, .queue = queue, .timeout_ms = WAIT_LIMIT_S * 1000},
        ret, err);
}

static struct queue_dead *dead_open(const char *queue) {
    struct queue_dead *dead = NULL;
    struct idem_error err = {0};

    if (dead_try(queue, &dead, &err) != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(dead != NULL);
    return dead;
}

static struct queue_letter next(struct queue_dead *dead) {
    struct queue_letter letter;
    struct idem_error err = {0};

    if (broker->next(dead, &letter, &err) != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(err.code, 0);
    return letter;
}

static bool has(const struct queue_field *fields, size_t n, const char *name, const char *value) {
    for (size_t i = 0; i < n; i++)
        if (fields[i].name.len == strlen(name) &&
            memcmp(fields[i].name.at, name, strlen(name)) == 0)
            return fields[i].value.len == strlen(value) &&
                   memcmp(fields[i].value.at, value, strlen(value)) == 0;
    return false;
}

TEST(letters_are_read_in_order_and_reading_takes_nothing_away) {
    struct queue_dead *dead;
    struct queue_letter letter;
    char id[32];

    server_begin();
    for (unsigned i = 1; i <= 50; i++) {
        snprintf(id, sizeof(id), "%u-0", i);
        say("XADD", "q.dead", id, "payload", numbered("m", i), "idem-reason", "why", NULL);
    }
    for (int round = 0; round < 2; round++) {
        dead = dead_open("q.dead");
        for (unsigned i = 1; i <= 50; i++) {
            letter = next(dead);
            snprintf(id, sizeof(id), "%u-0", i);
            CHECK(letter.message != NULL);
            CHECK_STR(letter.receipt, id);
            CHECK_INT(letter.message->body.len, strlen(numbered("m", i)));
            CHECK(memcmp(letter.message->body.at, numbered("m", i), letter.message->body.len) == 0);
            CHECK(has(letter.message->headers, letter.message->headers_n, "idem-reason", "why"));
            CHECK(has(letter.message->properties, letter.message->properties_n, "message_id", id));
            CHECK_STR(letter.message->queue, "q.dead");
        }
        CHECK(next(dead).message == NULL);
        CHECK(next(dead).message == NULL);
        broker->close(dead);
    }
}

TEST(a_letter_that_is_requeued_is_as_it_was_and_then_removed) {
    static const struct queue_dead_fields dead_fields = {
        .verdict = "dead", .reason = "no", .attempts = 5, .status = 1, .prefix = "p:", .hash = "h"};
    struct idem_error err = {0};
    struct queue_dead *dead;
    struct queue_letter letter;
    struct test_consumer t;

    server_begin();
    say("XADD", "q", "*", "body", "x", "header", "y", NULL);
    test_consumer_open_as(&t, "me");
    test_consumer_until(&t, 1);
    CHECK(test_consumer_bury(&t, 0, &dead_fields));
    test_consumer_ack(&t, 0);
    dead = dead_open("q.dead");
    CHECK_INT(broker->requeue(dead, NULL, &err),
              IDEM_E_INVALID); /* the place has not read a letter yet */
    letter = next(dead);
    CHECK(has(letter.message->headers, letter.message->headers_n, "idem-attempts", "5"));
    CHECK(has(letter.message->headers, letter.message->headers_n, "idem-queue", "q"));
    CHECK_INT(broker->requeue(dead, NULL, &err), 0);
    CHECK_INT(broker->remove(dead, letter.receipt, &err), 0);
    CHECK_INT(broker->remove(dead, letter.receipt, &err), IDEM_E_ABSENT);
    CHECK_INT(broker->remove(dead, "all", &err), IDEM_E_INVALID);
    CHECK(next(dead).message == NULL);
    broker->close(dead);
    test_consumer_until(&t, 2);
    CHECK_STR(body_of(&t, 1), "x");
    CHECK_INT(t.got[1]->headers_n, 1);
    CHECK_STR(header_of(&t, 1, "header"), "y");
    CHECK_STR(say("XLEN", "q.dead", NULL), ":0\r\n");
    test_consumer_close(&t);
}

TEST(a_letter_may_be_requeued_elsewhere_and_one_without_an_origin_must_be) {
    struct idem_error err = {0};
    struct queue_dead *dead;

    server_begin();
    say("XADD", "q.dead", "*", "body", "x", NULL);
    say("XADD", "q.dead", "*", "idem-reason", "x", NULL);
    say("SET", "text", "x", NULL);
    dead = dead_open("q.dead");
    CHECK(next(dead).message != NULL);
    CHECK_INT(broker->requeue(dead, NULL, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem-queue");
    CHECK_INT(broker->requeue(dead, "q.dead", &err), IDEM_E_INVALID);
    CHECK_INT(broker->requeue(dead, "text", &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "no stream");
    CHECK_INT(broker->requeue(dead, "elsewhere", &err), 0);
    CHECK_STR(say("XLEN", "elsewhere", NULL), ":1\r\n");
    CHECK(next(dead).message != NULL);
    CHECK_INT(broker->requeue(dead, "elsewhere", &err), IDEM_E_INVALID);
    broker->close(dead);
}

TEST(a_place_that_is_not_there_has_no_letters) {
    struct queue_dead *dead = NULL;
    struct idem_error err = {0};

    server_begin();
    CHECK_INT(dead_try("q.dead", &dead, &err), IDEM_E_ABSENT);
    say("SET", "q.dead", "x", NULL);
    CHECK_INT(dead_try("q.dead", &dead, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "no stream");
    CHECK_INT(dead_try("", &dead, &err), IDEM_E_INVALID);
    server_stop(&server);
    CHECK_INT(dead_try("q.dead", &dead, &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "cannot be reached");
    CHECK_INT(broker->open(&(struct queue_dead_config){.url = "redis+cluster://x", .queue = "q"},
                           &dead, &err),
              IDEM_E_INVALID);
    CHECK(dead == NULL);
    broker->close(NULL);
}

/* Moves the clock, so that the timeout in another thread ends. */
static void *time_runs(void *ended) {
    while (!*(_Atomic bool *)ended) {
        loop_clock_forward(WAIT_LIMIT_S * 1000);
        wait_step();
    }
    return NULL;
}

TEST(a_server_that_dies_is_an_error_and_is_used_again) {
    _Atomic bool ended = false;
    pthread_t clock;
    struct idem_error err = {0};
    struct queue_letter letter;
    struct queue_dead *dead;

    server_begin();
    for (int i = 0; i < 20; i++)
        say("XADD", "q.dead", "*", "body", "x", "idem-queue", "q", NULL);
    dead = dead_open("q.dead");
    letter = next(dead);
    server_pause(&server);
    CHECK_INT(pthread_create(&clock, NULL, time_runs, &ended), 0);
    CHECK_INT(broker->requeue(dead, NULL, &err), IDEM_E_UNKNOWN);
    CHECK_HAS(err.text, "may have happened");
    ended = true;
    CHECK_INT(pthread_join(clock, NULL), 0);
    server_go_on(&server);
    server_stop(&server);
    CHECK_INT(broker->remove(dead, letter.receipt, &err), IDEM_E_REFUSED);
    server_begin();
    CHECK_INT(broker->remove(dead, letter.receipt, &err), 0);
    for (int i = 0; i < 19; i++)
        CHECK(next(dead).message != NULL);
    CHECK(next(dead).message == NULL);
    broker->close(dead);
}

TEST(a_letter_that_is_too_large_is_listed_and_can_be_removed) {
    struct idem_error err = {0};
    struct idem_buffer out = {0};
    struct queue_letter letter;
    struct queue_dead *dead;

    server_begin();
    redis_put_head(&out, 3 + 2 * 5000);
    redis_put_text(&out, "XADD");
    redis_put_text(&out, "q.dead");
    redis_put_text(&out, "1-1");
    for (int i = 0; i < 10000; i++)
        redis_put_text(&out, "x");
    CHECK(say_bytes(&out)[0] == '$');
    say("XADD", "q.dead", "1-2", "body", "x", NULL);
    dead = dead_open("q.dead");
    letter = next(dead);
    CHECK_STR(letter.receipt, "1-1");
    CHECK(has(letter.message->properties, letter.message->properties_n, "too_large", "10000"));
    CHECK_INT(broker->requeue(dead, "q", &err), IDEM_E_INVALID);
    CHECK_INT(broker->remove(dead, letter.receipt, &err), 0);
    CHECK_STR(next(dead).receipt, "1-2");
    CHECK_INT(broker->requeue(dead, "q", &err), 0);
    CHECK(next(dead).message == NULL);
    broker->close(dead);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
